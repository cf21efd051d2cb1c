// The tree of forks as a drawing: a line for each session, from the token where it left its parent to its last one.

const SVG = "http://www.w3.org/2000/svg";
const ROW = 36, TOP = 10, EDGE = 8, LETTER = 6.6;

// The session whose line a fork leaves: its parent, or, if it was forked before the parent's own beginning, the
// ancestor that these tokens come from.
function origin(session, known) {
  let one = session.parent && known.get(session.parent.session);
  while (one && one.parent && session.parent.at <= one.parent.at && known.has(one.parent.session)) one = known.get(one.parent.session);
  return one;
}

// Return families: {root, members, used}, members in drawing order, the family used last first.
export function families(sessions) {
  const known = new Map(sessions.map((session) => [session.id, session]));
  const children = new Map();
  const roots = [];
  for (const session of sessions) {
    const parent = origin(session, known);
    if (parent) children.set(parent.id, [...(children.get(parent.id) || []), session]);
    else roots.push(session);
  }
  return roots.map((root) => {
    const members = [];
    const waiting = [root];
    while (waiting.length) {  // later forks first, so that no line crosses another
      const session = waiting.pop();
      members.push(session);
      waiting.push(...(children.get(session.id) || []).sort((a, b) => a.parent.at - b.parent.at || b.created - a.created));
    }
    return {root, members, used: Math.max(...members.map((session) => session.used))};
  }).sort((a, b) => b.used - a.used);
}

// Draw into a box and return the first token that is shown.
export function draw(box, members, current, preview) {
  const width = Math.max(box.clientWidth, 200);
  const begin = (session) => session === members[0] ? Math.min(session.first, session.tokens) : session.parent.at;
  const forked = members.slice(1).map(begin);
  const end = Math.max(...members.map((session) => session.tokens), 1);
  let start = begin(members[0]);
  const spread = end - Math.min(...forked, end);
  if (spread < (end - start) / 3) start = Math.max(start, end - 2 * spread - 20);  // far from the start: magnified
  const x = (token) => EDGE + (width - 2 * EDGE) * Math.max(0, token - start) / Math.max(end - start, 1);
  const rows = new Map(members.map((session, i) => [session.id, TOP + i * ROW]));
  const known = new Map(members.map((session) => [session.id, session]));
  const svg = element("svg", {width, height: TOP + members.length * ROW, role: "group", "aria-label": "Tree of forks"});
  for (const session of members.slice(1)) {
    const [at, from, to] = [x(begin(session)), rows.get(origin(session, known).id), rows.get(session.id)];
    svg.append(element("path", {d: `M${at} ${from}V${to - 6}q0 6 6 6`, class: "joint"}));
  }
  for (const session of members) {
    const [at, y] = [begin(session), rows.get(session.id)];
    const [left, right] = [x(at), Math.max(x(session.tokens), x(at) + 6)];
    const chosen = session.id === current;
    const link = element("a", {href: `#${session.id}`, class: chosen ? "chosen" : ""});
    if (chosen) link.setAttribute("aria-current", "true");
    const words = preview(session) || "…";
    link.setAttribute("aria-label", `${at === 0 ? "From the start" : `Fork at token ${at}`}, ${session.tokens} tokens: ${words}`);
    const letter = chosen ? 1.12 * LETTER : LETTER;
    const room = Math.max(width - left - EDGE, Math.min(width / 2, words.length * letter));
    const shown = words.length * letter > room ? `${words.slice(0, Math.floor(room / letter) - 1)}…` : words;
    const over = left + shown.length * letter > width - EDGE;
    link.append(
      element("rect", {x: Math.min(left, over ? width - EDGE - room : left), y: y - 8, width: Math.max(right - left, 44), height: ROW - 4, class: "hit"}),
      element("path", {d: `M${left + (session === members[0] ? 0 : 6)} ${y}H${right}`, class: "branch"}),
      element("circle", {cx: right, cy: y, r: 4}),
      element("text", {x: over ? width - EDGE : left + (session === members[0] ? 0 : 6), y: y + 17, "text-anchor": over ? "end" : "start"}, shown),
    );
    svg.append(link);
  }
  box.replaceChildren(svg);
  const row = rows.get(current);
  if (row < box.scrollTop || row > box.scrollTop + box.clientHeight - ROW) box.scrollTop = row - box.clientHeight / 2;
  return start;
}

function element(name, attributes, text = "") {
  const one = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== "") one.setAttribute(key, value);
  one.textContent = text;
  return one;
}

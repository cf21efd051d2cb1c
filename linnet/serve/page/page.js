// The playground: one session at a time, its text, its forks, and what its state costs.
//
// The address names the session (#sess_...), so that a reload, a link and the back button return to it. Everything
// shown comes from the server: after an error or a restart the page asks again and shows what the server has.

import * as api from "./api.js";
import * as forks from "./forks.js";
import * as meter from "./meter.js";
import * as settings from "./settings.js";
import {Text, percent, quoted} from "./text.js";

const SHOWN = 2000;  // tokens of a session that are shown at once
const LISTED = 500;  // sessions
const PREVIEW = 48;  // tokens that name a session in the list
const FRAME = 40;  // milliseconds between two drawings of new tokens
const AGAIN = 1500;  // milliseconds between two questions whether the server is back
const at = (id) => document.getElementById(id);

let model = null;
let session = null;  // the one that is shown; null: a new one
let sessions = [];
let running = null;  // AbortController of a generation
let prefix = 0;  // tokens that begin every text and have none themselves
let waiting = 0;  // timer while the server does not answer
let picked = null;  // position of the token whose panel is open
const previews = new Map();  // id -> text; dropped when the session changes
const text = new Text(at("text"), openPanel);

// ---- errors

function show(error) {
  if (error.name === "AbortError") return;
  const known = error instanceof api.Failure;
  if (!known) console.error(error);
  if (error.status === 401 && !api.hasKey()) return askKey();
  at("error").firstElementChild.textContent = known ? error.message : `The page failed: ${api.sentence(error.message)}`;
  at("error").hidden = false;
  if (error.status === 401) askKey();
  else if (error.status === 0 && !waiting) waiting = setTimeout(ask, AGAIN);
}

function calm() {
  at("error").hidden = true;
}

async function ask() {  // is the server back?
  try {
    if (!(await fetch("health", {cache: "no-store"})).ok) throw new Error();
    await connect();
    waiting = 0;
    calm();
  } catch (error) {
    waiting = error.status ? 0 : setTimeout(ask, AGAIN);
    if (error.status) show(error);
  }
}

async function attempt(action, ...values) {
  try {
    await action(...values);
  } catch (error) {
    show(error);
  }
}

// An action of the user: not while text is being generated, nor before the page shows what a restarted server has.
const act = (action) => (...values) => {
  if (running || waiting) return;
  calm();
  attempt(action, ...values);
};

// ---- connecting

async function connect() {
  model = (await api.get("v1/models")).data[0];
  const begin = (await api.post("tokenize", {text: "", add_special_tokens: true})).tokens;
  prefix = begin.length;
  at("model").textContent = model.id;
  at("key-form").hidden = true;
  at("app").hidden = false;
  await refresh();
  await openFromAddress();
}

function askKey() {
  at("key-form").hidden = at("key-open").hidden = false;
  at("key").focus();
}

async function refresh() {
  const all = [];
  let more = true;
  while (more && all.length < LISTED) {
    const after = all.length ? `&after=${encodeURIComponent(all.at(-1).id)}` : "";
    const part = await api.get(`v1/sessions?limit=100${after}`);
    all.push(...part.data);
    more = part.has_more && part.data.length > 0;
  }
  sessions = all;
  at("list-note").textContent = more ? `The ${LISTED} sessions used last; there are more.` : "";
  at("list-note").hidden = !more;
  showSessions();
  showMemory();
}

// ---- the list and the tree

function preview(one) {
  if (previews.has(one.id)) return previews.get(one.id);
  return one.tokens > start(one) ? "…" : "(empty)";
}

const start = (one) => Math.max(one.first, one.parent ? one.parent.at : 0);

async function loadPreviews(wanted) {
  const missing = wanted.filter((one) => !previews.has(one.id) && one.tokens > start(one));
  let loaded = missing.length === 0;
  const work = async () => {
    for (let one = missing.pop(); one; one = missing.pop()) {
      const part = await api.get(`v1/sessions/${one.id}/tokens?start=${start(one)}&end=${start(one) + PREVIEW}`).catch(() => null);
      previews.set(one.id, part ? part.data.map((token) => token.text).join("").replace(/\s+/g, " ").trim() || "(blank)" : "…");
      loaded = false;
    }
  };
  const count = missing.length;
  await Promise.all([work(), work(), work()]);
  if (count && !loaded) showSessions(false);
}

function showSessions(load = true) {
  const groups = forks.families(sessions);
  const mine = session && groups.find((group) => group.members.some((one) => one.id === session.id));
  const focused = document.activeElement && at("list").contains(document.activeElement) && document.activeElement.hash;
  at("list").replaceChildren(...groups.map((group) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    const newest = group.members.reduce((a, b) => b.used > a.used ? b : a);
    link.href = `#${group === mine ? session.id : newest.id}`;
    if (group === mine) link.setAttribute("aria-current", "true");
    const count = group.members.length - 1;
    const small = document.createElement("small");
    const size = `${newest.tokens.toLocaleString("en")} ${newest.tokens === 1 ? "token" : "tokens"}`;
    small.textContent = [size, count && `${count} ${count === 1 ? "fork" : "forks"}`, ago(group.used)].filter(Boolean).join(" · ");
    link.append(named(preview(group.root)), small);
    item.append(link);
    return item;
  }));
  if (!groups.length) at("list").append(Object.assign(document.createElement("li"), {className: "soft", textContent: "None yet."}));
  if (focused) at("list").querySelector(`a[href="${focused}"]`)?.focus();
  const several = Boolean(mine && mine.members.length > 1);
  at("forks").hidden = !several;
  if (several) drawForks(mine.members);
  if (load) loadPreviews([...groups.map((group) => group.root), ...(several ? mine.members : [])]).catch(show);
}

function drawForks(members) {
  const box = at("forks").lastElementChild;
  const focused = box.contains(document.activeElement) && document.activeElement.getAttribute("href");
  const from = forks.draw(box, members, session.id, preview);
  box.previousElementSibling.textContent = from > members[0].first ? `Forks, from token ${from.toLocaleString("en")} on` : "Forks";
  if (focused) box.querySelector(`a[href="${focused}"]`)?.focus();
}

const named = (words) => Object.assign(document.createElement("span"), {textContent: words});

function ago(seconds) {
  const passed = Math.max(0, Date.now() / 1000 - seconds);
  if (passed < 60) return "just now";
  const [unit, count] = passed < 3600 ? ["minute", passed / 60] : passed < 86400 ? ["hour", passed / 3600] : ["day", passed / 86400];
  return new Intl.RelativeTimeFormat("en").format(-Math.floor(count), unit);
}

// ---- one session

async function openFromAddress() {
  const id = decodeURIComponent(location.hash.slice(1));
  if (running) running.abort();
  closePanel(false);
  if (!id) {
    session = null;
    text.clear();
    for (const name of ["earlier", "before"]) at(name).hidden = true;
    showSession();
    return;
  }
  try {
    await open(id);
  } catch (error) {
    if (error.status !== 404) throw error;
    history.replaceState(null, "", location.pathname);
    await openFromAddress();
    throw error;
  }
}

async function open(id) {
  const one = await api.get(`v1/sessions/${encodeURIComponent(id)}`);
  session = one;
  note(one);
  text.clear();
  at("status").textContent = "";
  at("keep-seed").hidden = true;
  await loadTokens(Math.max(one.first, one.tokens - SHOWN));
  showSession();
  at("paper").scrollTop = at("paper").scrollHeight;
}

// Load tokens from a position to the end; tokens that were sampled on this page keep their alternatives.
async function loadTokens(from) {
  const kept = new Map(text.tokens), {id, tokens: end} = session;
  if (from <= Math.min(from, ...kept.keys())) text.clear();
  else text.cut(from);
  for (let position = from; position < end;) {
    const part = await api.get(`v1/sessions/${id}/tokens?start=${position}&end=${end}`);
    if (session?.id !== id) return;  // another one was opened meanwhile
    for (const token of part.data) {
      const before = kept.get(token.position);
      text.push(before && before.token === token.token ? {...before, ...token} : token, prefix);
    }
    if (part.end <= position) break;
    position = part.end;
  }
  const begin = Math.min(...text.tokens.keys(), session.tokens);
  at("earlier").hidden = begin <= session.first;
  at("earlier").textContent = `Show ${Math.min(SHOWN, begin - session.first).toLocaleString("en")} earlier tokens`;
  at("before").hidden = session.first === 0;
  at("before").textContent = `The state has read ${session.first.toLocaleString("en")} earlier tokens that are not in its file.`;
}

function note(one) {  // a session changed: the list shows it as it is
  previews.delete(one.id);
  sessions = [one, ...sessions.filter((other) => other.id !== one.id)];
}

function showSession() {
  const some = session !== null;
  at("title").textContent = some ? `Session of ${session.tokens.toLocaleString("en")} ${session.tokens === 1 ? "token" : "tokens"}` : "New session";
  at("title").title = some ? session.id : "";
  document.title = some && model ? `${model.id}: ${session.tokens} tokens` : "linnet: playground";
  at("download").hidden = at("delete").hidden = !some;
  at("hint").hidden = !some || !session.tokens;
  at("text").classList.toggle("empty", !some || !session.tokens);
  showSessions();
  showMemory();
}

function showMemory(tokens = session ? session.tokens : 0) {
  const counted = [session, ...sessions].find((one) => one && one.tokens > 0);
  const perToken = counted ? counted.softmax_bytes / counted.tokens : 0;
  const state = session && session.tokens ? session.state_bytes : model ? model.state_bytes : 0;
  meter.show(state, perToken * tokens, tokens, perToken);
  meter.showAll(sessions);
}

function go(id) {  // show a session that this page has just changed or created
  if (location.hash !== `#${id}`) history.pushState(null, "", `#${id}`);
}

// ---- generating

async function generate(body = {}) {
  const fields = settings.fields();
  const prompt = at("prompt").value;
  if (prompt && !body.tokens) {
    if (session && session.tokens) body.text = prompt;
    else if (!session) {
      session = await api.post("v1/sessions", {text: prompt});
      note(session);
      text.clear();
      go(session.id);
      await loadTokens(session.first);
    } else body.text = prompt;
    at("prompt").value = "";
  } else if (!session) {
    throw new api.Failure("Write something first: an empty session has nothing to continue from.", 400);
  }
  await stream(fields, body, prompt);
}

async function stream(fields, body, prompt) {
  const before = session.tokens;
  const watched = session.id;
  const began = performance.now();
  let first = 0, count = 0, last = before, seed = null, failed = null, timer = 0;
  const arrived = [];
  const flush = () => {  // tokens are drawn together: a layout for each would take longer than the model
    clearTimeout(timer);
    timer = 0;
    if (session?.id !== watched || !arrived.length) return;
    follow(() => { for (const token of arrived.splice(0)) text.push({...token, sampled: true}, prefix); });
    showMemory(last);
    status(`${count.toLocaleString("en")} tokens …`);
  };
  running = new AbortController();
  const stop = running;
  busy(true);
  status("Reading …");
  try {
    for await (const {name, data} of api.events(`v1/sessions/${watched}/generate`, {...fields, ...body, stream: true}, stop.signal)) {
      if (session?.id !== watched) break;
      if (name === "start") {
        seed = data.seed;
        if (data.start > before) {  // what was appended is shown before the answer
          session = {...session, tokens: data.start};
          await loadTokens(before);
        }
        last = data.start;
      } else if (name === "token") {
        if (!first) first = performance.now() - began;
        if (data.position !== null) [count, last] = [count + 1, data.position + 1];
        arrived.push(data);
        timer ||= setTimeout(flush, FRAME);
      } else if (name === "done") {
        flush();
        session = data.session;
        const seconds = (performance.now() - began - first) / 1000;
        const rate = count > 1 ? `, ${Math.round((count - 1) / seconds).toLocaleString("en")} per second` : "";
        const why = {length: "", stop: "; stopped at a stop text or end token", cancelled: "; stopped"}[data.finish_reason] ?? "";
        status(`${count} tokens${rate}, the first after ${Math.round(first)} ms${why}.`, seed);
      }
    }
  } catch (error) {
    failed = error;
    flush();
    if (session?.id === watched) status(error.name === "AbortError" ? `Stopped after ${count} tokens.` : "", seed);
    if (prompt && seed === null) at("prompt").value = prompt;  // it was not read
  } finally {
    if (running === stop) {
      running = null;
      busy(false);
    }
  }
  if (failed?.status === 0) throw failed;
  if (session?.id === watched) await settle(watched, before, failed !== null);
  if (failed) throw failed;
}

// Show what the server has: tokens of a stop text, and those that were sampled but not sent, are part of the session.
async function settle(id, from, unsure) {
  for (let i = 0; unsure; i++) {
    const one = await api.get(`v1/sessions/${id}`);
    const same = session.tokens === one.tokens && i > 0;
    session = one;
    if (same || i === 5) break;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  note(session);
  await follow(async () => {
    await loadTokens(Math.min(from, session.tokens));
    showSession();
  });
}

async function follow(change) {  // keep the end of the text in sight if it was
  const box = at("paper");
  const end = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
  await change();
  if (end) box.scrollTop = box.scrollHeight;
}

function status(words, seed = null) {
  at("status").textContent = words;
  at("keep-seed").hidden = seed === null || at("seed").value.trim() === String(seed);
  at("keep-seed").dataset.seed = seed;
  at("keep-seed").textContent = `Keep seed ${seed}`;
}

function busy(yes) {
  for (const name of ["go", "new", "upload", "download", "delete"]) at(name).disabled = yes;
  at("stop").hidden = !yes;
  at("go").hidden = yes;
  at("text").setAttribute("aria-busy", String(yes));
  document.body.classList.toggle("busy", yes);
}

// ---- going back

function openPanel(position, element) {
  if (running) return;
  picked = position;
  const token = text.tokens.get(position);
  const chance = token && token.logprob != null ? `, ${percent(token.logprob)}` : "";
  at("panel-title").textContent = element.classList.contains("begin") ? `Token ${position}: the begin token`
    : `Token ${position}: ${quoted(element.textContent)}${chance}`;
  at("again").hidden = position <= session.first;
  const others = ((token && token.top) || []).filter((one) => one.token !== token.token);
  at("others").hidden = !others.length;
  at("others").lastElementChild.replaceChildren(...others.map((one) => {
    const button = Object.assign(document.createElement("button"), {type: "button"});
    button.textContent = `${quoted(one.text)} ${percent(one.logprob)}`;
    button.addEventListener("click", act(() => again(position, [one.token])));
    return button;
  }));
  at("panel").hidden = false;
  const box = element.getClientRects()[0], paper = at("paper").getBoundingClientRect();
  const left = Math.min(box.left - paper.left, paper.width - at("panel").offsetWidth - 8);
  at("panel").style.left = `${Math.max(8, left)}px`;
  at("panel").style.top = `${box.bottom - paper.top + at("paper").scrollTop + 4}px`;
  for (const one of document.querySelectorAll(".picked")) one.classList.remove("picked");
  element.classList.add("picked");
  (at("again").hidden ? at("fork") : at("again")).focus({preventScroll: true});
  at("panel").scrollIntoView({block: "nearest"});
}

function closePanel(focus = true) {
  at("panel").hidden = true;
  picked = null;
  for (const one of document.querySelectorAll(".picked")) one.classList.remove("picked");
  if (focus && text.current) text.current.focus();
}

// Fork at a position and show the fork, which has the same tokens before it.
async function forkAt(position) {
  closePanel(false);
  const fork = (await api.post(`v1/sessions/${session.id}/fork`, {at: position})).data[0];
  session = fork;
  note(fork);
  go(fork.id);
  text.cut(position);
  if (!text.tokens.size) await loadTokens(Math.max(fork.first, fork.tokens - SHOWN));
  status("");
  showSession();
}

async function again(position, tokens) {
  const fields = settings.fields();
  await forkAt(position);
  if (!tokens) settings.nextSeed();
  await stream({...fields, ...settings.fields()}, tokens ? {tokens} : {}, "");
}

async function rollBack(position) {
  closePanel(false);
  session = await api.post(`v1/sessions/${session.id}/rollback`, {to: position});
  note(session);
  text.cut(position);
  status(`Back to ${position.toLocaleString("en")} tokens.`);
  showSession();
  at("prompt").focus();
}

// ---- files, deleting

async function downloadState() {
  const blob = await api.download(`v1/sessions/${session.id}/state`);
  const link = Object.assign(document.createElement("a"), {href: URL.createObjectURL(blob), download: `${session.id}.state`});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  status(`The state file has ${meter.bytes(blob.size)}.`);
}

async function uploadState() {
  const [file] = at("file").files;
  if (!file) return;
  try {
    const one = await api.upload("v1/sessions", file);
    note(one);
    go(one.id);
    await open(one.id);
  } finally {
    at("file").value = "";
  }
}

async function deleteSession() {
  at("sure-title").textContent = `Delete this session of ${session.tokens.toLocaleString("en")} tokens? Its forks stay.`;
  at("sure").returnValue = "";
  at("sure").showModal();
  await new Promise((resolve) => at("sure").addEventListener("close", resolve, {once: true}));
  if (at("sure").returnValue !== "delete") return;
  const {id, parent} = session;
  await api.remove(`v1/sessions/${id}`);
  sessions = sessions.filter((one) => one.id !== id);
  const next = parent && sessions.some((one) => one.id === parent.session) ? `#${parent.session}` : location.pathname;
  history.replaceState(null, "", next);
  await openFromAddress();
}

// ---- wiring

at("error").lastElementChild.addEventListener("click", calm);
at("key-open").addEventListener("click", askKey);
at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  api.useKey(at("key").value.trim());
  at("key").value = "";
  calm();
  attempt(connect);
});
at("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  act(generate)();
});
at("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("composer").requestSubmit();
});
at("stop").addEventListener("click", () => running?.abort());
at("new").addEventListener("click", act(async () => {
  history.pushState(null, "", location.pathname);
  await openFromAddress();
  status("");
  at("prompt").focus();
}));
at("upload").addEventListener("click", () => at("file").click());
at("file").addEventListener("change", act(uploadState));
at("download").addEventListener("click", act(downloadState));
at("delete").addEventListener("click", act(deleteSession));
at("again").addEventListener("click", act(() => again(picked)));
at("fork").addEventListener("click", act(async () => {
  await forkAt(picked);
  at("prompt").focus();
}));
at("back").addEventListener("click", act(() => rollBack(picked)));
at("panel-close").addEventListener("click", () => closePanel());
at("keep-seed").addEventListener("click", () => {
  settings.setSeed(at("keep-seed").dataset.seed);
  at("keep-seed").hidden = true;
});
at("earlier").addEventListener("click", act(async () => {
  const begin = Math.min(...text.tokens.keys());
  await loadTokens(Math.max(session.first, begin - SHOWN));
}));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !at("panel").hidden) closePanel();
});
document.addEventListener("pointerdown", (event) => {
  if (!at("panel").hidden && !at("panel").contains(event.target) && !event.target.closest("#text")) closePanel(false);
});
addEventListener("hashchange", () => attempt(openFromAddress));
addEventListener("focus", () => { if (model && !running && !waiting) attempt(refresh); });
let width = 0;
new ResizeObserver(([entry]) => {
  const now = Math.round(entry.contentRect.width);
  if (now !== width && !at("forks").hidden) showSessions(false);
  width = now;
}).observe(at("work"));

const narrow = matchMedia("(max-width: 62rem)");
const fold = () => { for (const one of document.querySelectorAll("details.side")) one.open = !narrow.matches; };
narrow.addEventListener("change", fold);
fold();
settings.prepare();
attempt(connect);

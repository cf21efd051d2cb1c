// The bars: bytes of the state next to what a softmax cache of the same shape would hold after as many tokens.

const at = (name) => document.getElementById(name);

export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 999.5 && unit < units.length - 1) [count, unit] = [count / 1000, unit + 1];
  return `${unit && count < 99.95 ? count.toFixed(1) : Math.round(count)}\u00a0${units[unit]}`;
}

const times = (ratio) => ratio < 100 ? ratio.toFixed(1) : Math.round(ratio).toLocaleString("en");

// state, softmax: bytes now; perToken: of the cache, 0 if not known yet.
export function show(state, softmax, tokens, perToken) {
  const most = Math.max(state, softmax, 1);
  at("state-bytes").textContent = bytes(state);
  at("softmax-bytes").textContent = bytes(softmax);
  at("state-bar").style.width = `${100 * state / most}%`;
  at("softmax-bar").style.width = `${100 * softmax / most}%`;
  let note = "";
  if (state && softmax > state) note = `The cache would be ${times(softmax / state)} times as large, and grow with every token.`;
  else if (state && perToken) note = `The cache would be larger from ${Math.ceil(state / perToken).toLocaleString("en")} tokens on.`;
  at("memory-note").textContent = tokens ? `${tokens.toLocaleString("en")} tokens. ${note}` : note;
}

export function showAll(sessions) {
  const sum = (name) => sessions.reduce((total, session) => total + session[name], 0);
  const count = sessions.length;
  at("memory-all").textContent = count < 2 ? "" :
    `All ${count} sessions: ${bytes(sum("state_bytes"))} of states, ${bytes(sum("softmax_bytes"))} of caches.`;
}

// Requests to the server this page came from: JSON, files, and server-sent events read from a POST.

export class Failure extends Error {  // one sentence for the user; status 0: no answer
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

let key = sessionStorage.getItem("key") || "";

export const hasKey = () => key !== "";

export function useKey(text) {
  key = text;
  sessionStorage.setItem("key", text);
}

async function send(method, path, {body, type = "application/json", signal} = {}) {
  const headers = {};
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = type;
  let answer;
  try {
    answer = await fetch(path, {method, headers, body, signal, cache: "no-store", credentials: "omit"});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (key && /[^\x20-\x7e]/.test(key)) throw new Failure("An API key has letters, digits and signs of ASCII only.", 401);
    throw new Failure(`The server at ${location.host} does not answer; this page continues when it does.`, 0);
  }
  if (answer.ok) return answer;
  let message = `The server answered ${answer.status}; see its log.`;
  try {
    message = sentence((await answer.json()).error.message);
  } catch { /* not JSON: something between this page and the server answered */ }
  throw new Failure(message, answer.status);
}

export const get = async (path) => (await send("GET", path)).json();
export const remove = async (path) => (await send("DELETE", path)).json();
export const post = async (path, value) => (await send("POST", path, {body: JSON.stringify(value)})).json();
export const download = async (path) => (await send("GET", path)).blob();
export const upload = async (path, body) => (await send("POST", path, {body, type: "application/octet-stream"})).json();

// Yield {name, data} for each event of a stream; data is parsed. An event "error" is thrown.
export async function* events(path, value, signal) {
  const answer = await send("POST", path, {body: JSON.stringify(value), signal});
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Failure("The connection ended before the text did; the session keeps the tokens that came.", 0);
    }
    if (part.done) throw new Failure("The stream ended too early; the session keeps the tokens that came.", 0);
    text += part.value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: ?(.*)/s, 2)));
      if (fields.data === "[DONE]") return;
      const data = JSON.parse(fields.data);
      if (fields.event === "error") throw new Failure(sentence(data.error.message), data.error.code === "busy" ? 409 : 500);
      yield {name: fields.event, data};
    }
  }
}

export function sentence(text) {
  text = text.trim();
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

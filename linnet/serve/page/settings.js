// The sampling controls: kept in this browser, turned into the fields of a request.

import {Failure} from "./api.js";

const DEFAULTS = {temperature: "0.8", "top-p": "0.95", "max-tokens": "128", seed: "", stops: "", alternatives: true};
const STORED = "linnet-sampling";
const at = (name) => document.getElementById(name);

export function prepare() {
  let kept = {};
  try {
    kept = JSON.parse(localStorage.getItem(STORED)) || {};
  } catch { /* damaged or not allowed: the defaults */ }
  write({...DEFAULTS, ...kept});
  at("settings").addEventListener("input", () => { show(); keep(); });
  at("settings").addEventListener("submit", (event) => event.preventDefault());
  at("reset").addEventListener("click", () => { write(DEFAULTS); keep(); });
}

function write(values) {
  for (const name of Object.keys(DEFAULTS)) {
    if (name === "alternatives") at(name).checked = Boolean(values[name]);
    else at(name).value = values[name];
  }
  show();
}

function show() {
  for (const output of document.querySelectorAll("#settings output")) output.value = Number(at(output.htmlFor[0]).value).toFixed(2);
}

function keep() {
  const values = Object.fromEntries(Object.keys(DEFAULTS).map((name) => [name, at(name).value]));
  try {
    localStorage.setItem(STORED, JSON.stringify({...values, alternatives: at("alternatives").checked}));
  } catch { /* not allowed: they last until the page is closed */ }
}

// Return the fields of a generation, or throw a Failure that names the control.
export function fields() {
  const value = {
    temperature: Number(at("temperature").value),
    top_p: Number(at("top-p").value),
    max_tokens: whole("max-tokens", "Max tokens"),
  };
  if (at("seed").value.trim()) value.seed = whole("seed", "Seed");
  const stops = at("stops").value.split("\n").filter(Boolean).map((line) => line.replaceAll("\\n", "\n"));
  if (stops.length) value.stop = stops;
  if (at("alternatives").checked) Object.assign(value, {logprobs: true, top_logprobs: 5});
  return value;
}

function whole(name, shown) {
  const text = at(name).value.trim();
  if (!/^\d{1,15}$/.test(text)) {
    at("sampling").open = true;
    at(name).focus();
    throw new Failure(`${shown} is “${text}”; it must be a whole number.`, 400);
  }
  return Number(text);
}

export function setSeed(seed) {
  at("seed").value = String(seed);
  keep();
}

// With a seed, the same position gets the same token again: a second try takes the next seed.
export function nextSeed() {
  if (/^\d{1,15}$/.test(at("seed").value.trim())) setSeed(Number(at("seed").value) + 1);
}

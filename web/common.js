const $ = (id) => document.getElementById(id);

// An element with properties, then its children: nodes, or strings, which become text and never markup.
function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// Storage may be switched off in the browser; settings then last until the page is left.
const stored = {
  read(area, name) { try { return window[area].getItem(`bellhop.${name}`) ?? ""; } catch { return ""; } },
  write(area, name, value) {
    try { value === "" ? window[area].removeItem(`bellhop.${name}`) : window[area].setItem(`bellhop.${name}`, value); } catch { /* kept in memory alone */ }
  },
};

let apiKey = stored.read("sessionStorage", "key");

function setApiKey(key) {
  apiKey = key.trim();
  stored.write("sessionStorage", "key", apiKey);
  $("key-setting").value = apiKey;
  $("key").value = apiKey;
}

class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// A response of status 200, or a ServerError with the server's own words.
async function request(path, { body, signal } = {}) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (apiKey !== "") headers.Authorization = `Bearer ${apiKey}`;
  let response;
  try {
    response = await fetch(path, { method: body === undefined ? "GET" : "POST", headers, signal, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(0, "The server does not answer. Is it still running?");
  }
  if (response.ok) return response;
  const text = await response.text();
  let message = text.trim().slice(0, 500);
  let answer = null;
  try {
    answer = JSON.parse(text);
    message = answer.error.message;
  } catch { /* not JSON: the text itself */ }
  if (response.status === 401) askForKey();
  const failure = new ServerError(response.status, message || `The server answered ${response.status}.`);
  failure.answer = answer;
  throw failure;
}

function askForKey() {
  if (!$("key-bar").hidden) return;
  $("key-bar").hidden = false;
  if (!$("settings").contains(document.activeElement)) $("key").focus();
}

const number = (value, digits = 0) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const short = (value) => value < 10000 ? number(value) : value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });
const rate = (value) => number(value, value < 100 ? 1 : 0);

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${number(value, unit > 0 && value < 100 ? 1 : 0)} ${units[unit]}`;
}

function milliseconds(value) {
  return value < 1 ? `${number(value * 1000)} µs` : `${number(value, value < 100 ? 2 : 0)} ms`;
}

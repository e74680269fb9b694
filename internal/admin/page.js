"use strict";
// Shows api/status and polls it. The page has one script, made of these files in this order: page.js (state and words),
// page_summary.js (the sentence, what needs attention, and what this worker knows by itself, as the server says), page_draw.js (nodes and charts), page_show.js (the sections), page_events.js (recent events) and page_poll.js (requests, and the
// start). Names of categories, channels and events come from publishers: they are only ever set as text.

const INTERVAL = 2000;           // ms between two requests
const MAX_INTERVAL = 15000;      // ms between two requests while the server does not respond
const REQUEST_TIMEOUT = 10000;   // ms for one response
const RELOAD_AFTER = 10000;      // ms that a page is shown before it reloads itself for another version
const MOST_SLOTS = 100;
const MOST_SOURCES = 3;          // of a category

const state = {
  data: null,        // the last status
  failed: null,      // the answer of a server that has no status: why, and what the worker knows all the same
  answered: 0,       // when the server last responded, by our clock
  lost: false,       // the server does not respond
  ahead: null,       // how far the clock of Redis is ahead of ours, in ms
};
const $ = id => document.getElementById(id);
const now = () => Date.now() + (state.ahead ?? 0);

// --- words -----------------------------------------------------------------------------------------------------------

const LETTERS = "kept as a dead letter, up to 60 a minute of each category";
const WHY = {
  "sent ": "in Slack",
  "dropped global": "the global limit was full, or what was left of it is kept for others",
  "dropped group": "the limit was full that the categories of its group share",
  "dropped category": "the category’s limit was full",
  "dropped duplicate": "an event with the same id was sent before or is in flight",
  "dropped reply": "no event: NATS’ acknowledgement, for a publisher whose reply subject is one of events",
  "dropped muted": "muted by an operator for a while",
  "dropped expired": "older than EVENT_MAX_AGE, on arrival or while it waited",
  "dead malformed": "could not be read; " + LETTERS,
  "dead too_large": "too large; " + LETTERS,
  "dead unroutable": "named a channel that is not configured; " + LETTERS,
  "dead slack_rejected": "rejected by Slack; kept as a dead letter",
  "dead undeliverable": "Slack kept failing on it while it took others; kept as a dead letter",
};

const count = n => n.toLocaleString("en");
const counted = (n, one, many = one + "s") => count(n) + " " + (n === 1 ? one : many);
const pad = n => String(n).padStart(2, "0");
const when = text => text ? Date.parse(text) : 0; // 0: never

// clock is the time of day, with the date if it is not today.
function clock(ms) {
  const t = new Date(ms), today = new Date(now());
  const time = [t.getHours(), t.getMinutes(), t.getSeconds()].map(pad).join(":");
  if (t.toDateString() === today.toDateString()) return time;
  return [t.getFullYear(), pad(t.getMonth() + 1), pad(t.getDate())].join("-") + " " + time;
}
const minute = ms => clock(ms).slice(0, -3);

function span(ms) {
  const s = Math.max(0, Math.ceil(ms / 1000));
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min" + (s % 60 ? " " + s % 60 + " s" : "");
  const m = Math.floor(s / 60);
  if (m < 24 * 60) return Math.floor(m / 60) + " h" + (m % 60 ? " " + m % 60 + " min" : "");
  const h = Math.floor(m / 60);
  return Math.floor(h / 24) + " d" + (h % 24 ? " " + h % 24 + " h" : "");
}

const ago = ms => span(ms).split(" ").slice(0, 2).join(" ") + " ago"; // without the smaller unit

// A limit has the form 10/1h30m, 1000000/24h:15m or 200/24h:fixed.
const UNITS = { ms: 1, s: 1000, m: 60000, h: 3600000 };
const partsOf = limit => limit.split("/").pop().split(":");
function windowOf(limit) {
  let ms = 0;
  for (const [, n, unit] of partsOf(limit)[0].matchAll(/([\d.]+)(ms|s|m|h)/g)) ms += n * UNITS[unit];
  return ms;
}
function windowText(limit) {
  const [length, grain] = partsOf(limit);
  if (grain === "fixed") return "in the current " + length;
  return grain ? `in ${length}, by ${grain}` : "in " + length;
}

// What nobody sees, or changes how the rest is shown: controls, formats such as U+202E, line separators.
const UNSAFE = /[\p{C}\p{Zl}\p{Zp}]/gu;

const plain = text => String(text).replace(UNSAFE, "\ufffd");

// name bounds the length of a category's name.
function name(category) {
  const letters = Array.from(category);
  return category === "_other" ? "other categories" : letters.length > 40 ? letters.slice(0, 40).join("") + "…" : category;
}

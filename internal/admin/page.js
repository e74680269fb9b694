"use strict";
// Shows api/status and polls it. The page has one script, made of these files in this order: page.js (state and words),
// page_sentence.js (the state as a sentence), page_attention.js (what is wrong now, and what this worker knows by itself),
// page_draw.js (nodes and charts), page_show.js (the sections), page_events.js (recent events) and page_poll.js (requests, and the
// start). Names of categories, channels and events come from publishers: they are only ever set as text.

const INTERVAL = 2000;           // ms between two requests
const MAX_INTERVAL = 15000;      // ms between two requests while the server does not respond
const REQUEST_TIMEOUT = 10000;   // ms for one response
const RELOAD_AFTER = 10000;      // ms that a page is shown before it reloads itself for another version
const MOST_SLOTS = 100;
const SHOWN_AFTER = 5;           // s that events wait for a channel without a reason until it is shown: most are posted before
const NEARLY_FULL = 0.8;         // the share of its bound above which a stream is worth a line
const SILENT = 10000;            // ms since a replica's last report
const STARTING = 15000;          // ms that a replica may take until it is ready
const MOST_SOURCES = 3;          // of a category
const MOST_LINES = 20;           // of what needs attention

const state = {
  data: null,        // the last status
  error: "",         // why the server has no status
  failed: null,      // the body of that answer: what the worker knows all the same
  answered: 0,       // when the server last responded, by our clock
  lost: false,       // the server does not respond
  ahead: null,       // how far the clock of Redis is ahead of ours, in ms
};
const $ = id => document.getElementById(id);
const now = () => Date.now() + (state.ahead ?? 0);

// --- words -----------------------------------------------------------------------------------------------------------

const WAITS = {
  nats: "NATS is unavailable",
  consumer: "the stream or its consumer is missing",
  redis: "Redis is unavailable",
  slack: "Slack has not accepted messages",
  credentials: "Slack does not accept the token or the webhook",
  dead_letter: "the dead-letter stream does not accept events",
  backlog: "too many events wait for slow channels",
  redis_clock: "the clock of Redis was set back",
};
// What the trouble with Redis is; see kindTexts in internal/status/this.go.
const TROUBLES = {
  full: "Redis is full",
  read_only: "Redis is read-only, it is a replica",
  not_saving: "Redis takes no writes, because it cannot save to its disk",
  no_replicas: "Redis takes no writes, because too few of its replicas are connected",
  loading: "Redis is loading its data",
  denied: "Redis refuses the user of the worker",
  wrong_key: "a key in Redis holds what notifier does not write",
  unreachable: "Redis is unavailable",
};
const UNPOSTED = {
  slack: "Slack takes no posts at the moment",
  pace: "the pace of the channel",
};
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

// isolated keeps the text direction of what people have written from the sentence around it.
const isolated = text => "\u2068" + plain(text) + "\u2069";

// name isolates a category's text direction from the sentence around it, and bounds its length.
function name(category) {
  if (category === "_other") return "other categories";
  const letters = Array.from(plain(category));
  return "\u2068" + (letters.length > 40 ? letters.slice(0, 40).join("") + "…" : letters.join("")) + "\u2069";
}


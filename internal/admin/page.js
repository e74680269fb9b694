"use strict";
// Shows api/status and polls it. The page has one script, made of three files in this order: page.js (state and words),
// page_draw.js (what is shown) and page_poll.js (requests, and the start). Names of categories, channels and events come
// from publishers: they are only ever set as text.

const INTERVAL = 2000;           // ms between two requests
const MAX_INTERVAL = 15000;      // ms between two requests while the server does not respond
const REQUEST_TIMEOUT = 10000;   // ms for one response
const RELOAD_AFTER = 10000;      // ms that a page is shown before it reloads itself for another version
const MOST_SLOTS = 100;
const SHOWN_AFTER = 5;           // s that events wait for a channel without a reason until it is shown: most are posted before

const state = {
  data: null,        // the last status
  error: "",         // why the server has no status
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
  redis_key: "the key of a category or a group in Redis is damaged",
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

// --- the sentence ----------------------------------------------------------------------------------------------------

const freeAt = scope => Math.max(when(scope.next_free), 0);
const isFull = scope => freeAt(scope) > now();
const fullest = scope => scope.tiers.reduce((a, b) => b.used * a.max > a.used * b.max ? b : a);
const keptOnly = tier => tier.kept > 0 && tier.used < tier.max && tier.used + tier.kept >= tier.max;
const pauseEnds = data => data.slack_cooldown_s > 0 ? when(data.time) + data.slack_cooldown_s * 1000 : 0;

// pausesOf are the pauses that Slack has asked for and that are not over, with the ms that are left.
const pausesOf = data => (data.slack_pauses ?? [])
  .map(p => ({ channel: p.channel, left: when(data.time) + p.left_s * 1000 - now() })).filter(p => p.left > 0);

// replicasOf is how many replicas run; not all need be listed.
const replicasOf = data => data.replicas.length + (data.more_replicas ?? 0);

// waitsOf is what the replicas wait for, and which of them do; one entry for each channel that takes no posts. While the
// clock of Redis is behind, events are still processed.
function waitsOf(data) {
  const found = new Map();
  for (const replica of data.replicas) {
    for (const wait of replica.waits ?? []) {
      const channel = wait.channel ?? "";
      const key = wait.for + " " + (channel || " " + wait.reason);
      const entry = found.get(key) ?? { key, for: wait.for, channel, reason: wait.reason, since: when(wait.since), replicas: [] };
      entry.since = Math.min(entry.since, when(wait.since));
      entry.replicas.push(replica.id);
      found.set(key, entry);
    }
  }
  return [...found.values()];
}

// waitText is what is waited for: "#alerts: Slack asked to wait 12 s".
function waitText(wait) {
  if (!wait.channel) return `Waiting for ${plain(wait.for)} since ${clock(wait.since)} (${whoWaits(wait)}): ${plain(wait.reason)}`;
  const reason = wait.reason.startsWith(wait.for + ": ") ? wait.reason.slice(wait.for.length + 2) : wait.reason;
  return `${name(wait.channel)}: ${plain(reason)} (since ${clock(wait.since)}, ${whoWaits(wait)})`;
}
const whoWaits = wait => wait.replicas.length === 1 ? plain(wait.replicas[0]) : counted(wait.replicas.length, "replica");

// keptBack are the channels whose events something keeps, or that are not posted within a few seconds.
const keptBack = data => (data.unposted ?? []).filter(u => u.why || u.oldest_s >= SHOWN_AFTER);

// unpostedText is what waits for a channel: "#alerts: 42 events wait to be posted, the oldest for 3 min; the pace of the channel".
function unpostedText({ channel, events, oldest_s, why }) {
  const reason = UNPOSTED[why] ? "; " + UNPOSTED[why] : "";
  return `${name(channel)}: ${counted(events, "event waits", "events wait")} to be posted, the oldest for ${span(oldest_s * 1000)}${reason}`;
}

// describe returns the state as a sentence, with a kind that changes only when the sentence should be read out again.
function describe() {
  const { data, error, lost } = state;
  const then = data ? " The status below is from that time." : "";
  if (lost) return verdict("lost", "bad", "not connected", `Not connected since ${clock(state.answered + (state.ahead ?? 0))}: trying again.` + then);
  if (error) return verdict("redis", "bad", "Redis unavailable", "Redis is unavailable: the status is unknown." + (data ? ` Below is how it was at ${clock(when(data.time))}.` : ""));
  if (!data) return verdict("asking", "none", "", "Loading the status.");
  if (data.replicas.length === 0) return verdict("none", "bad", "no replica", "No replica was seen in the last minute: nothing is sent.");
  return describeHeld(data) ?? describeLimits(data);
}
const verdict = (kind, level, title, text) => ({ kind, level, title, text });

function describeHeld(data) {
  const held = data.held > 0 ? `; ${counted(data.held, "event is", "events are")} held.` : ".";
  const title = data.held > 0 ? "held " + count(data.held) : "held";
  const pause = pausesOf(data).find(p => !p.channel);
  if (pause) return verdict("pause", "note", title, `Held: Slack has asked to wait ${span(pause.left)}` + held);
  const waits = waitsOf(data).filter(w => w.for !== "redis_clock" && w.for !== "redis_key" && !w.channel);
  if (waits.length === 0) return describeChannels(data, title, held);
  const waiting = new Set(waits.flatMap(w => w.replicas)).size, all = replicasOf(data);
  const what = [...new Set(waits.map(w => WAITS[w.for] ?? plain(w.for)))].join(", ");
  const kind = "waits " + what;
  if (waiting === all) return verdict(kind, "bad", title, `Held: ${what} since ${clock(Math.min(...waits.map(w => w.since)))}` + held);
  return verdict(kind, "note", title, `Partly working. ${waiting} of ${all} replicas wait: ${what}` + held);
}

// describeChannels is for when Slack takes no posts in some channels; null: it does in all.
function describeChannels(data, title, held) {
  const pauses = pausesOf(data), paused = pauses.map(p => p.channel);
  const failing = waitsOf(data).filter(w => w.channel && !paused.includes(w.channel));
  const channels = [...paused, ...failing.map(w => w.channel)];
  if (channels.length === 0) return null;
  const kind = "channels " + channels.join(" "), who = channels.length > 3 ? count(channels.length) + " channels" : channels.map(name).join(", ");
  if (failing.length === 0) return verdict(kind, "note", title, `Held for ${who}: Slack has asked to wait ${span(Math.max(...pauses.map(p => p.left)))}` + held);
  return verdict(kind, "bad", title, `Held for ${who}: ${WAITS.slack} since ${clock(Math.min(...failing.map(w => w.since)))}` + held);
}

function describeLimits(data) {
  const tier = fullest(data.global), slots = `${count(tier.used)}/${count(tier.max)}`;
  if (isFull(data.global)) {
    const free = freeAt(data.global), blocking = data.global.tiers.reduce((a, b) => b.free_in_s > a.free_in_s ? b : a);
    return verdict("full", "note", slots + " full",
      `Full: all ${count(blocking.max)} global slots are taken. Everything is dropped until ${clock(free)}, for ${span(free - now())}.`);
  }
  const taken = tier.used > 0 ? `${count(tier.used)} of ${count(tier.max)} global slots are taken` : `All ${count(tier.max)} global slots are free`;
  const kept = data.global.tiers.find(keptOnly);
  if (kept) {
    const left = kept.max - kept.used, who = (data.reserves ?? []).filter(r => r.kept > 0).map(r => name(r.category));
    return verdict("kept", "note", slots + " kept",
      `Full for most: ${counted(left, "global slot is", "global slots are")} left, kept for ${who.length > 3 ? count(who.length) + " categories" : who.join(", ")}. All others are dropped.`);
  }
  const full = [...data.groups ?? [], ...data.categories].filter(isFull).sort((a, b) => b.dropped_last_hour - a.dropped_last_hour);
  if (full.length === 0) return verdict("working", "ok", slots, `Working. ${taken}; no limit is full.`);
  return verdict("some", "note", slots, `Working. ${taken}; ${fullText(full)}.`);
}

const scopeName = scope => scope.category ? name(scope.category) : "the group " + name(scope.group);

function fullText(full) {
  const [a, b] = full;
  if (full.length === 1) return `${scopeName(a)} is full until ${clock(freeAt(a))}`;
  if (full.length === 2) return `${scopeName(a)} is full until ${clock(freeAt(a))} and ${scopeName(b)} until ${clock(freeAt(b))}`;
  return `${count(full.length)} limits are full, that of ${scopeName(a)} until ${clock(freeAt(a))} and the last of them until ${clock(Math.max(...full.map(freeAt)))}`;
}

// missedText summarises the last hour for someone who has just opened the page.
function missedText(data) {
  const { sent_last_hour: sent, dropped_last_hour: dropped } = data.global;
  if (sent + dropped === 0) return "Nothing was sent or dropped in the last hour.";
  if (dropped === 0) return `In the last hour ${counted(sent, "event was", "events were")} sent and none was dropped.`;
  const of = (outcome, reason) => data.outcomes_last_hour.find(o => o.outcome === outcome && (o.reason ?? "") === reason)?.n ?? 0;
  const reasons = [["global", "by the global limit"], ["group", "by the limit of their group"], ["category", "by the limit of their category"], ["muted", "as muted"], ["duplicate", "as duplicates"], ["expired", "as too old"]]
    .filter(([reason]) => of("dropped", reason) > 0).map(([reason, text]) => count(of("dropped", reason)) + " " + text);
  const most = data.categories.reduce((a, b) => b.dropped_last_hour > a.dropped_last_hour ? b : a, { dropped_last_hour: 0 });
  const tail = most.category ? `; most of them of ${name(most.category)}, ${count(most.dropped_last_hour)}` : "";
  return `In the last hour ${counted(sent, "event was", "events were")} sent and ${count(dropped)} dropped: ${reasons.join(", ")}${tail}.`;
}

let announced = "";
function showSentence() {
  const v = describe();
  setSentence($("sentence"), v.text);
  setAttribute($("now"), "data-level", v.level);
  $("all").classList.toggle("stale", state.lost || state.error !== "");
  document.title = (v.title ? v.title + " · " : "") + "notifier";
  setIcon(v.level);
  if (v.kind !== announced) { // not every second, because a screen reader reads it out
    announced = v.kind;
    $("announce").textContent = v.text;
  }
}

const ICONS = { none: "#6b7280", ok: "#16a34a", note: "#d97706", bad: "#dc2626" };
function setIcon(level) {
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill="${ICONS[level]}"/></svg>`;
  setAttribute($("icon"), "href", "data:image/svg+xml," + encodeURIComponent(svg));
}

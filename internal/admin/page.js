"use strict";
// Shows api/status and polls it. Names of categories, channels and events come from publishers: they are only ever set as
// text.

const EVERY = 2000;          // ms between two requests
const SLOWEST = 15000;       // ms between two requests while the server does not respond
const PATIENCE = 10000;      // ms for one response
const RELOAD_AFTER = 10000;  // ms that a page is shown before it reloads itself for another version
const MOST_HOLDERS = 8, MOST_SLOTS = 100;
const SLOTS_LISTED = 1000;   // the server lists no more

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
  slack: "Slack does not take messages",
  credentials: "Slack does not accept the token or the webhook",
  dead_letter: "the dead-letter stream does not accept events",
  redis_clock: "the clock of Redis was set back",
};
const WHY = {
  "sent ": "in Slack",
  "dropped global": "the global limit was full",
  "dropped category": "the category’s limit was full",
  "dropped duplicate": "an event with the same id was sent before or is in flight",
  "dropped expired": "older than EVENT_MAX_AGE",
  "dead malformed": "could not be read; kept as a dead letter",
  "dead too_large": "too large; kept as a dead letter",
  "dead unroutable": "named a channel that is not configured; kept as a dead letter",
  "dead slack_rejected": "rejected by Slack; kept as a dead letter",
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

// A limit has the form 10/1h30m.
const UNITS = { ms: 1, s: 1000, m: 60000, h: 3600000 };
function windowOf(limit) {
  let ms = 0;
  for (const [, n, unit] of limit.split("/").pop().matchAll(/([\d.]+)(ms|s|m|h)/g)) ms += n * UNITS[unit];
  return ms;
}

// name isolates a category's text direction from the sentence around it, and bounds its length.
function name(category) {
  if (category === "_other") return "other categories";
  const letters = Array.from(category);
  return "\u2068" + (letters.length > 40 ? letters.slice(0, 40).join("") + "…" : category) + "\u2069";
}

// --- the sentence ----------------------------------------------------------------------------------------------------

const freeAt = scope => Math.max(when(scope.next_free), 0);
const isFull = scope => freeAt(scope) > now();
const fullest = scope => scope.tiers.reduce((a, b) => b.used * a.max > a.used * b.max ? b : a);
const pauseEnds = data => data.slack_cooldown_s > 0 ? when(data.time) + data.slack_cooldown_s * 1000 : 0;

// waitsOf is what the replicas wait for, and which of them do. While the clock of Redis is behind, events are still processed.
function waitsOf(data) {
  const found = new Map();
  for (const replica of data.replicas) {
    for (const wait of replica.waits ?? []) {
      const key = wait.for + " " + wait.reason;
      const entry = found.get(key) ?? { for: wait.for, reason: wait.reason, since: when(wait.since), replicas: [] };
      entry.since = Math.min(entry.since, when(wait.since));
      entry.replicas.push(replica.id);
      found.set(key, entry);
    }
  }
  return [...found.values()];
}

// judge describes the state in a sentence, and names it with a kind that changes only when the sentence should be read out
// again.
function judge() {
  const { data, error, lost } = state;
  const then = data ? " Below is how it was then." : "";
  if (lost) return verdict("lost", "bad", "not connected", `Not connected since ${clock(state.answered + (state.ahead ?? 0))}: trying again.` + then);
  if (error) return verdict("redis", "bad", "Redis unavailable", "Redis cannot be reached: this page cannot tell." + (data ? ` Below is how it was at ${clock(when(data.time))}.` : ""));
  if (!data) return verdict("asking", "none", "", "Loading the status.");
  if (data.replicas.length === 0) return verdict("none", "bad", "no replica", "No replica was seen in the last minute: nothing is sent.");
  return judgeHeld(data) ?? judgeLimits(data);
}
const verdict = (kind, level, title, text) => ({ kind, level, title, text });

function judgeHeld(data) {
  const held = data.held > 0 ? `; ${counted(data.held, "event is", "events are")} held.` : ".";
  const title = data.held > 0 ? "held " + count(data.held) : "held";
  const left = pauseEnds(data) - now();
  if (left > 0) return verdict("pause", "note", title, `Held: Slack has asked to wait ${span(left)}` + held);
  const waits = waitsOf(data).filter(w => w.for !== "redis_clock");
  if (waits.length === 0) return null;
  const waiting = new Set(waits.flatMap(w => w.replicas)).size, all = data.replicas.length;
  const what = [...new Set(waits.map(w => WAITS[w.for] ?? w.for))].join(", ");
  const kind = "waits " + what;
  if (waiting === all) return verdict(kind, "bad", title, `Held: ${what} since ${clock(Math.min(...waits.map(w => w.since)))}` + held);
  return verdict(kind, "note", title, `Partly working. ${waiting} of ${all} replicas wait: ${what}` + held);
}

function judgeLimits(data) {
  const tier = fullest(data.global), slots = `${count(tier.used)}/${count(tier.max)}`;
  if (isFull(data.global)) {
    const free = freeAt(data.global), blocking = data.global.tiers.reduce((a, b) => b.free_in_s > a.free_in_s ? b : a);
    return verdict("full", "note", slots + " full",
      `Full: all ${count(blocking.max)} global slots are taken. Everything is dropped until ${clock(free)}, for ${span(free - now())}.`);
  }
  const taken = tier.used > 0 ? `${count(tier.used)} of ${count(tier.max)} global slots are taken` : `All ${count(tier.max)} global slots are free`;
  const full = data.categories.filter(isFull).sort((a, b) => b.dropped_last_hour - a.dropped_last_hour);
  if (full.length === 0) return verdict("working", "ok", slots, `Working. ${taken}; no limit is full.`);
  return verdict("some", "note", slots, `Working. ${taken}; ${fullText(full)}.`);
}

function fullText(full) {
  const [a, b] = full;
  if (full.length === 1) return `${name(a.category)} is full until ${clock(freeAt(a))}`;
  if (full.length === 2) return `${name(a.category)} is full until ${clock(freeAt(a))} and ${name(b.category)} until ${clock(freeAt(b))}`;
  return `${count(full.length)} categories are full, ${name(a.category)} until ${clock(freeAt(a))} and the last of them until ${clock(Math.max(...full.map(freeAt)))}`;
}

// missedText summarises the last hour for someone who has just opened the page.
function missedText(data) {
  const { sent_last_hour: sent, dropped_last_hour: dropped } = data.global;
  if (sent + dropped === 0) return "Nothing was sent or dropped in the last hour.";
  if (dropped === 0) return `In the last hour ${counted(sent, "event was", "events were")} sent and none was dropped.`;
  const of = (outcome, reason) => data.outcomes_last_hour.find(o => o.outcome === outcome && (o.reason ?? "") === reason)?.n ?? 0;
  const reasons = [["global", "by the global limit"], ["category", "by the limit of their category"], ["duplicate", "as duplicates"], ["expired", "as too old"]]
    .filter(([reason]) => of("dropped", reason) > 0).map(([reason, text]) => count(of("dropped", reason)) + " " + text);
  const most = data.categories.reduce((a, b) => b.dropped_last_hour > a.dropped_last_hour ? b : a, { dropped_last_hour: 0 });
  const tail = most.category ? `; most of them of ${name(most.category)}, ${count(most.dropped_last_hour)}` : "";
  return `In the last hour ${counted(sent, "event was", "events were")} sent and ${count(dropped)} dropped: ${reasons.join(", ")}${tail}.`;
}

let announced = "";
function showSentence() {
  const v = judge();
  setText($("sentence"), v.text);
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

// --- nodes -----------------------------------------------------------------------------------------------------------

// Nodes are updated and not replaced: what is selected or focused stays so, and nothing flickers.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
function setAttribute(node, attribute, value) {
  if (node.getAttribute(attribute) !== String(value)) node.setAttribute(attribute, value);
}
function el(tag, className, ...inner) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...inner);
  return node;
}

// sync makes the children of a node match the items: new ones are created, known ones are moved, all are updated.
function sync(parent, items, keyOf, make, update) {
  const known = new Map(Array.from(parent.children, child => [child.item, child]));
  items.forEach((item, i) => {
    const key = keyOf(item);
    let node = known.get(key);
    known.delete(key);
    if (!node) {
      node = make();
      node.item = key;
    }
    update(node, item);
    if (parent.children[i] !== node) parent.insertBefore(node, parent.children[i] ?? null);
  });
  for (const node of known.values()) node.remove();
}

// row creates a table row whose cells have these classes and labels; the first cell is the row's header.
function row(...cells) {
  const made = cells.map(([className, label], i) => {
    const cell = el(i ? "td" : "th", className);
    cell.setAttribute("role", i ? "cell" : "rowheader");
    if (i) cell.dataset.label = label;
    else cell.scope = "row";
    return cell;
  });
  const tr = el("tr", "", ...made);
  tr.setAttribute("role", "row");
  return tr;
}
const cell = (tr, className) => tr.querySelector("." + className);
const tbody = id => document.querySelector("#" + id + " tbody");

// setMoment shows a time and, in small print, how far away it is, which changes every second.
function setMoment(node, ms, past, note = "") {
  if (!node.firstChild) node.append(el("time"), " ", el("small"));
  const [time, , small] = node.childNodes;
  setText(time, ms ? clock(ms) : past);
  setAttribute(time, "datetime", ms ? new Date(ms).toISOString() : "");
  small.dataset.moment = ms;
  small.dataset.note = note;
  tickMoment(small);
}
function tickMoment(small) {
  const ms = Number(small.dataset.moment), left = ms - now(), note = small.dataset.note;
  if (!ms) return setText(small, note);
  const text = left > 0 ? "in " + span(left) : left > -1500 ? "now" : ago(-left - 1000);
  setText(small, note ? text + ", " + note : text);
}

// --- charts ----------------------------------------------------------------------------------------------------------

// hourPaths draws the minutes of the last hour as two paths on 60 by 24: sent goes up from the middle, dropped down.
function hourPaths(minutes, first) {
  const most = Math.max(1, ...minutes.flatMap(m => [m.sent, m.dropped]));
  let sent = "", dropped = "";
  for (const m of minutes) {
    const x = Math.round((when(m.start) - first) / 60000);
    const bar = n => `M${x + .1} 12v${(n / most * 11.5).toFixed(2)}h.8V12z`;
    if (m.sent) sent += bar(-m.sent);
    if (m.dropped) dropped += bar(m.dropped);
  }
  return [sent, dropped];
}
const firstMinute = data => (Math.floor(when(data.time) / 60000) - 59) * 60000;

function drawHour(svg, minutes, first) {
  const [sent, dropped] = hourPaths(minutes, first);
  setAttribute(svg.querySelector(".sent"), "d", sent);
  setAttribute(svg.querySelector(".dropped"), "d", dropped);
}

function hourText(scope) {
  const busiest = scope.minutes.reduce((a, b) => b.sent + b.dropped > a.sent + a.dropped ? b : a, { sent: 0, dropped: 0 });
  const most = busiest.start ? `; the busiest minute was ${minute(when(busiest.start))} with ${count(busiest.sent)} sent and ${count(busiest.dropped)} dropped` : "";
  return `${count(scope.sent_last_hour)} sent and ${count(scope.dropped_last_hour)} dropped in the last hour${most}`;
}

function hourChart() {
  const holder = el("div");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [attribute, value] of [["viewBox", "0 0 60 24"], ["preserveAspectRatio", "none"], ["role", "img"]]) svg.setAttribute(attribute, value);
  for (const className of ["sent", "dropped", "middle"]) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("class", className);
    if (className === "middle") path.setAttribute("d", "M0 12h60");
    svg.append(path);
  }
  holder.append(svg);
  return holder;
}

function setAxis(axis, from, to) {
  const far = to - from > 20 * 3600000;
  const times = [0, 1, 2, 3, 4].map(i => from + (to - from) * i / 4);
  sync(axis, times.map((t, i) => [i, t]), ([i]) => i, () => el("span"), (node, [, t]) => setText(node, far ? minute(t) : minute(t).slice(-5)));
}

// drawTimeline draws how the slots of the longest window become free, if nothing else is sent.
function drawTimeline(data) {
  const tier = data.global.tiers.reduce((a, b) => windowOf(b.limit) > windowOf(a.limit) ? b : a);
  const from = when(data.time), length = windowOf(tier.limit);
  const frees = data.slots.map(s => when(s.frees)).sort((a, b) => a - b);
  const x = ms => Math.min(1000, Math.max(0, (ms - from) / length * 1000)).toFixed(1);
  const y = n => (100 - n / Math.max(tier.max, frees.length) * 100).toFixed(2);
  let line = frees.length ? `M0 ${y(frees.length)}` : "", strokes = "", last = "";
  frees.forEach((ms, i) => {
    line += `H${x(ms)}V${y(frees.length - i - 1)}`;
    if (x(ms) !== last) strokes += `M${x(ms)} 100v-9`;
    last = x(ms);
  });
  const paths = $("timeline").children;
  setAttribute(paths[0], "d", line && line + "H0z");
  setAttribute(paths[1], "d", line);
  setAttribute(paths[2], "d", strokes);
  setAxis($("axis"), from, from + length);
  setText($("timeline-text"), timelineText(frees, tier));
}

function timelineText(frees, tier) {
  if (frees.length === 0) return "All slots are free.";
  const at = i => clock(frees[i]), last = frees.length - 1;
  if (last === 0) return `One slot of ${tier.limit} is taken; it is free at ${at(0)}.`;
  const part = frees.length >= SLOTS_LISTED && tier.used > frees.length ? ` These are the newest ${count(frees.length)} of ${count(tier.used)}.` : "";
  return `${count(frees.length)} slots of ${tier.limit} are taken. The first is free at ${at(0)}, half of them by ${at(last >> 1)}, all by ${at(last)}.` + part;
}

// --- sections --------------------------------------------------------------------------------------------------------

function showFacts(data) {
  const tier = fullest(data.global), ready = data.replicas.filter(r => r.ready).length;
  setText($("fact-slots"), `${count(tier.used)} of ${count(tier.max)}`);
  setText($("fact-sent"), count(data.global.sent_last_hour));
  setText($("fact-dropped"), count(data.global.dropped_last_hour));
  setText($("fact-held"), count(data.held));
  setText($("fact-replicas"), data.replicas.length === 0 ? "none" : ready === data.replicas.length ? `${count(ready)} ready` : `${count(ready)} of ${count(data.replicas.length)} ready`);
}

// setTier shows how much of a tier is used, as a text and as a bar.
function setTier(node, tier, label) {
  if (!node.firstChild) {
    const bar = el("span", "bar", el("span"));
    bar.setAttribute("role", "meter");
    node.append(el("span"), bar);
  }
  const [text, bar] = node.children;
  const used = `${count(tier.used)} of ${count(tier.max)} in ${tier.limit.split("/").pop()}`;
  setText(text, used);
  node.classList.toggle("full", tier.free_in_s > 0);
  for (const [attribute, value] of [["valuemin", 0], ["valuemax", tier.max], ["valuenow", Math.min(tier.used, tier.max)], ["valuetext", used], ["label", label]]) {
    setAttribute(bar, "aria-" + attribute, value);
  }
  const width = Math.min(100, tier.used / tier.max * 100) + "%";
  if (bar.firstChild.style.width !== width) bar.firstChild.style.width = width;
}

function showGlobal(data) {
  sync($("tiers"), data.global.tiers, t => t.limit, () => el("div", "tier"), (node, tier) => {
    setTier(node, tier, "Global limit " + tier.limit);
    if (node.children.length < 3) node.insertBefore(el("span", "moment"), node.lastChild);
    const free = tier.free_in_s > 0 ? when(data.time) + tier.free_in_s * 1000 : 0;
    setMoment(node.children[1], free, "room now", free ? "full until then" : "");
  });
  drawTimeline(data);
  showHolders(data);
  if ($("slots").open) showSlots(data);
}

function showHolders(data) {
  const held = new Map();
  for (const slot of data.slots) held.set(slot.category ?? "", (held.get(slot.category ?? "") ?? 0) + 1);
  const most = [...held].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  const parts = most.slice(0, MOST_HOLDERS).map(([category, n]) => `${category ? name(category) : "no longer known"} ${count(n)}`);
  if (most.length > MOST_HOLDERS) parts.push(`and ${counted(most.length - MOST_HOLDERS, "more", "more")}`);
  setText($("holders"), parts.length ? "Held by: " + parts.join(", ") + "." : "No slots are taken.");
}

function showSlots(data) {
  const slots = data.slots.toReversed();
  sync(tbody("slots"), slots.slice(0, MOST_SLOTS), s => s.id, () => row(["frees"], ["category", "Category"], ["admitted", "Admitted"], ["event", "Event"]), (tr, slot) => {
    setMoment(cell(tr, "frees"), when(slot.frees));
    setText(cell(tr, "category"), slot.category ?? "no longer known");
    setText(cell(tr, "admitted"), clock(when(slot.at)));
    setText(cell(tr, "event"), slot.id);
  });
  setText($("more-slots"), slots.length > MOST_SLOTS ? `and ${count(slots.length - MOST_SLOTS)} more` : "");
}

function makeCategory() {
  const tr = row(["name"], ["used", "Used"], ["next", "Next free"], ["sent number", "Sent, 1 h"], ["dropped number", "Dropped, 1 h"], ["chart", "Last hour"], ["last", "Last sent"]);
  cell(tr, "name").append(el("bdi"));
  cell(tr, "dropped").append(el("b"));
  cell(tr, "chart").append(hourChart());
  return tr;
}

function showCategories(data) {
  const first = firstMinute(data), globalFree = freeAt(data.global);
  sync(tbody("categories"), data.categories, s => s.category, makeCategory, (tr, scope) => {
    setText(cell(tr, "name").firstChild, scope.category === "_other" ? "other categories" : scope.category);
    sync(cell(tr, "used"), scope.tiers, t => t.limit, () => el("div", "tier"), (node, tier) => setTier(node, tier, "Limit " + tier.limit));
    const free = freeAt(scope);
    // A category that has room still waits for the global limit.
    if (globalFree > free) setMoment(cell(tr, "next"), globalFree, "now", "global limit");
    else setMoment(cell(tr, "next"), free, "now");
    setText(tr.children[3], count(scope.sent_last_hour));
    setText(tr.children[4].firstChild, count(scope.dropped_last_hour));
    tr.children[4].firstChild.classList.toggle("zero", scope.dropped_last_hour === 0);
    const svg = cell(tr, "chart").querySelector("svg");
    drawHour(svg, scope.minutes, first);
    setAttribute(svg, "aria-label", hourText(scope));
    setMoment(cell(tr, "last"), when(scope.last_sent), "–");
  });
  $("categories").hidden = data.categories.length === 0;
  const more = data.more_categories;
  setText($("more-categories"), more > 0 ? `and ${counted(more, "more category", "more categories")}` : data.categories.length ? "" : "No categories yet.");
}

function showHour(data) {
  const first = firstMinute(data);
  drawHour($("hour"), data.global.minutes, first);
  setAxis($("hour-axis"), first, first + 3600000);
  setText($("hour-text"), hourText(data.global) + ".");
  sync(tbody("outcomes"), data.outcomes_last_hour, o => o.outcome + " " + (o.reason ?? ""), () => row(["outcome"], ["why", "Reason"], ["number", "Events"]), (tr, o) => {
    const key = o.outcome + " " + (o.reason ?? "");
    setText(cell(tr, "outcome"), key.trim());
    setText(cell(tr, "why"), WHY[key] ?? "");
    setText(cell(tr, "number"), count(o.n));
  });
  $("outcomes").hidden = data.outcomes_last_hour.length === 0;
}

function showReplicas(data) {
  sync(tbody("replicas"), data.replicas, r => r.id, () => row(["id"], ["state", "State"], ["number", "Holds"], ["waits wide", "Waits for"], ["started", "Running since"], ["seen", "Seen"], ["version", "Version"]), (tr, replica) => {
    setText(cell(tr, "id"), replica.id);
    setText(cell(tr, "state"), replica.ready ? "ready" : "not ready");
    cell(tr, "state").classList.toggle("state-ok", replica.ready);
    cell(tr, "state").classList.toggle("state-bad", !replica.ready);
    setText(cell(tr, "number"), count(replica.held));
    setText(cell(tr, "waits"), (replica.waits ?? []).map(w => w.for).join(", ") || "nothing");
    setMoment(cell(tr, "started"), when(replica.started));
    setMoment(cell(tr, "seen"), when(replica.seen));
    setText(cell(tr, "version"), replica.version);
  });
  $("replicas").hidden = data.replicas.length === 0;
  $("no-replicas").hidden = data.replicas.length > 0;
  const refused = new Map();
  for (const replica of data.replicas) for (const [channel, code] of Object.entries(replica.refused_channels ?? {})) refused.set(channel, code);
  sync(document.querySelector("#refused ul"), [...refused], ([channel]) => channel, () => el("li", "", el("bdi"), el("span")), (li, [channel, code]) => {
    setText(li.firstChild, channel);
    setText(li.lastChild, ": " + code);
  });
  $("refused").hidden = refused.size === 0;
}

function showWaits(data) {
  sync($("waits"), waitsOf(data), w => w.for + " " + w.reason, () => el("li"), (li, wait) => {
    const who = wait.replicas.length === 1 ? wait.replicas[0] : counted(wait.replicas.length, "replica");
    setText(li, `Waiting for ${wait.for} since ${clock(wait.since)} (${who}): ${wait.reason}`);
  });
}

// showError shows why the server has no status, in the place of what the replicas wait for.
function showError(error) {
  sync($("waits"), error ? [error] : [], e => e, () => el("li"), setText);
}

function show(data) {
  showFacts(data);
  showWaits(data);
  showGlobal(data);
  showCategories(data);
  showHour(data);
  showReplicas(data);
  setText($("missed"), missedText(data));
  $("all").hidden = false;
}

// tick updates what changes with time alone.
function tick() {
  showSentence();
  for (const small of document.querySelectorAll("[data-moment]")) tickMoment(small);
  if (state.data) {
    const left = pauseEnds(state.data) - now();
    setText($("fact-pause"), left > 0 ? span(left) : "none");
  }
  const at = clock(state.answered + (state.ahead ?? 0));
  setText($("contact"), state.lost ? "not connected since " + at : state.data || state.error ? "live, " + at : "connecting");
}

// --- polling ---------------------------------------------------------------------------------------------------------

let timer = 0, asking = null, failures = 0;

async function ask() {
  const mine = asking = new AbortController();
  const timeout = setTimeout(() => mine.abort(), PATIENCE);
  let answer = null;
  try {
    answer = await question(mine.signal);
  } catch {
    // no response, or not in time, or not from notifier
  } finally {
    clearTimeout(timeout);
  }
  if (asking !== mine) return; // the page was hidden, or another request has replaced this one
  failures = answer ? 0 : failures + 1;
  timer = setTimeout(ask, Math.min(SLOWEST, EVERY * 2 ** Math.max(0, failures - 1)));
  state.lost = !answer;
  if (answer) hear(answer);
  tick();
}

async function question(signal) {
  const begun = Date.now();
  const response = await fetch("api/status", { cache: "no-store", signal });
  const body = await response.json();
  if (!response.ok && typeof body.error !== "string") throw new Error("HTTP " + response.status);
  return { ok: response.ok, body, headers: response.headers, begun };
}

function hear(answer) {
  state.answered = Date.now();
  reloadFor(answer.headers.get("Notifier-Page"));
  if (answer.ok) return take(answer);
  state.error = answer.body.error;
  showError(state.error);
}

// take shows a status. The clock is adjusted only when it is wrong: otherwise countdowns would jump.
function take({ body: data, headers, begun }) {
  const age = Number(headers.get("Notifier-Age")) * 1000 || 0;
  const ahead = when(data.time) + age + (Date.now() - begun) / 2 - Date.now();
  if (state.ahead === null || Math.abs(ahead - state.ahead) > 500) state.ahead = ahead;
  state.data = data;
  state.error = "";
  show(data);
}

// reloadFor loads the page of the version that responds now. It does not do so at once, so that two versions behind one
// address do not make the page reload again and again.
function reloadFor(version) {
  if (version && version !== document.querySelector("meta[name=version]").content && performance.now() > RELOAD_AFTER) location.reload();
}

// A hidden page makes no requests.
let ticking = 0;
function visibility() {
  clearTimeout(timer);
  clearInterval(ticking);
  asking?.abort();
  asking = null;
  if (document.hidden) return;
  ticking = setInterval(tick, 1000);
  ask();
}
document.addEventListener("visibilitychange", visibility);
window.addEventListener("online", visibility);
$("slots").addEventListener("toggle", () => state.data && showSlots(state.data));
$("zone").textContent = Intl.DateTimeFormat().resolvedOptions().timeZone || "your time zone";
state.answered = Date.now();
visibility();

// The state as a sentence: a part of the page's script, see page.js.

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
      const entry = found.get(key) ?? { key, for: wait.for, channel, reason: wait.reason, kind: wait.kind, since: when(wait.since), replicas: [] };
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
  if (error) return describeError(data, state.failed);
  if (!data) return verdict("asking", "none", "", "Loading the status.");
  if (replicasOf(data) === 0) return verdict("none", "bad", "no replica", "No replica was seen in the last minute: nothing is sent.");
  return withTroubles(data, describeHeld(data) ?? describeRedis(data) ?? describeLimits(data));
}

// describeError is for when the worker cannot read the status. What it knows by itself decides whether anything is sent.
function describeError(data, failed) {
  const was = data ? ` The rest below is as it was at ${clock(when(data.time))}.` : " The rest of the status is unknown.";
  const redis = failed?.this?.redis;
  if (!redis) return verdict("redis", "bad", "status unknown", "The status cannot be read." + was);
  const held = failed.this.held > 0 ? `; this worker holds ${counted(failed.this.held, "event")}.` : ".";
  if (redis.state === "refuses" || redis.state === "unavailable") {
    return verdict("redis " + redis.kind, "bad", "nothing is sent", `${troubleText(redis)} since ${clock(when(redis.since))}: nothing is sent${held}` + was);
  }
  return verdict("unread " + failed.kind, "bad", "status unknown", `The status cannot be read: ${TROUBLES[failed.kind] ?? TROUBLES.unreachable}. This worker goes on${held}` + was);
}
const troubleText = trouble => TROUBLES[trouble.kind] ?? TROUBLES.unreachable;

// describeRedis is for when nobody waits for Redis, and yet it does not store everything; null: it does, or that is not known.
function describeRedis(data) {
  const redis = data.this?.redis;
  if (!redis || redis.state === "ok") return null;
  const since = clock(when(redis.since));
  if (redis.state !== "counts_only") return verdict("redis " + redis.kind, "bad", "nothing is sent", `${troubleText(redis)} since ${since}: nothing can be sent.`);
  return verdict("counts", "note", "no counts", `Working, but counts have not been stored since ${since}, because ${uncapitalised(troubleText(redis))}. No decision was refused; figures are incomplete, and other replicas may be missing.`);
}
const uncapitalised = text => text.startsWith("Redis") ? text : text[0].toLowerCase() + text.slice(1);

// deadOf is how many events became dead letters in the last hour; fullStreams are those with little room left.
const deadOf = data => (data.outcomes_last_hour ?? []).filter(o => o.outcome === "dead");
const sumOf = outcomes => outcomes.reduce((sum, o) => sum + o.n, 0);
const fullStreams = data => (data.streams ?? []).filter(s => !s.unknown && s.used_ratio > NEARLY_FULL);

// withTroubles adds what is lost or will be soon, whatever else is the case.
function withTroubles(data, v) {
  const dead = sumOf(deadOf(data)), full = fullStreams(data);
  const texts = [];
  if (dead > 0) texts.push(` ${counted(dead, "dead event")} in the last hour.`);
  if (full.length > 0) texts.push(` ${full.map(s => `${name(s.stream)} is ${percent(s.used_ratio)} full`).join(", ")}.`);
  if (texts.length === 0) return v;
  return { ...v, kind: [v.kind, dead > 0, ...full.map(s => s.stream)].join(" "), level: v.level === "ok" ? "note" : v.level, text: v.text + texts.join("") };
}
const percent = ratio => Math.floor(ratio * 100) + " %";

const verdict = (kind, level, title, text) => ({ kind, level, title, text });

function describeHeld(data) {
  const held = data.held > 0 ? `; ${counted(data.held, "event is", "events are")} held.` : ".";
  const title = data.held > 0 ? "held " + count(data.held) : "held";
  const pause = pausesOf(data).find(p => !p.channel);
  if (pause) return verdict("pause", "note", title, `Held: Slack has asked to wait ${span(pause.left)}` + held);
  const waits = waitsOf(data).filter(w => w.for !== "redis_clock" && !w.channel);
  if (waits.length === 0) return describeChannels(data, title, held);
  const waiting = new Set(waits.flatMap(w => w.replicas)).size, all = replicasOf(data);
  const what = [...new Set(waits.map(whatOf))].join(", ");
  const kind = "waits " + what;
  if (waiting === all) return verdict(kind, "bad", title, `Held: ${what} since ${clock(Math.min(...waits.map(w => w.since)))}` + held);
  return verdict(kind, "note", title, `Partly working. ${waiting} of ${all} replicas wait: ${what}` + held);
}

// whatOf is what is waited for, in words.
const whatOf = wait => wait.for === "redis" && TROUBLES[wait.kind] || (WAITS[wait.for] ?? plain(wait.for));

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
  if (data.ready_replicas === 0 && data.replicas.every(r => when(data.time) - when(r.started) > STARTING)) {
    return verdict("unready", "bad", "not ready", "No replica is ready: nothing is sent.");
  }
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

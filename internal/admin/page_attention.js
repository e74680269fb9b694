// What is wrong now, and what this worker knows by itself: a part of the page's script, see page.js.

// attentionOf lists what needs attention, the worst first: each has a key, a level, and a text of our own words around names.
function attentionOf(data, kind) {
  const bad = [...waitLines(data), ...refusedLines(data), ...deadLines(data), ...streamLines(data), ...settingsLines(data)];
  const note = [...countsLines(data), ...unpostedLines(data), ...silentLines(data), ...fullLines(data, kind), ...steeringLines(data)];
  return [...bad.map(([key, text]) => ({ key, level: "bad", text })), ...note.map(([key, text]) => ({ key, level: "note", text }))];
}

const waitLines = data => [
  ...waitsOf(data).map(w => ["wait " + w.key, waitText(w)]),
  ...pausesOf(data).filter(p => !waitsOf(data).some(w => w.for === "slack" && w.channel === (p.channel ?? "")))
    .map(p => ["pause " + (p.channel ?? ""), `${p.channel ? name(p.channel) + ": " : ""}Slack has asked to wait ${span(p.left)}`]),
  ...(data.paused ?? []).filter(p => !waitsOf(data).some(w => w.channel === p.channel))
    .map(p => ["paused " + p.channel, `${name(p.channel)}: no posts for ${span(p.left_s * 1000)}`]),
];

const unpostedLines = data => keptBack(data).map(u => ["unposted " + u.channel, unpostedText(u)]);

// refusedOf are the channels that refuse everything, each with Slack's code.
function refusedOf(data) {
  const refused = new Map();
  for (const replica of data.replicas) for (const [channel, code] of Object.entries(replica.refused_channels ?? {})) refused.set(channel, code);
  return [...refused];
}
const refusedLines = data => refusedOf(data).map(([channel, code]) => ["refused " + channel, `${name(channel)} refuses every message (${plain(code)}); its events become dead letters`]);

function deadLines(data) {
  const dead = deadOf(data);
  if (sumOf(dead) === 0) return [];
  return [["dead", `${counted(sumOf(dead), "dead event")} in the last hour: ${dead.map(o => `${count(o.n)} ${plain(o.reason)}`).join(", ")}. See them with “notifier dead list”.`]];
}

// streamText is how full a stream is: "NOTIFY is 87 % full (870 of 1,000 messages); a full one refuses new messages".
function streamText(s) {
  if (s.unknown) return `${name(s.stream)}: how full it is is not known (${plain(s.unknown)})`;
  if (!s.bound) return `${name(s.stream)} has no bound; it has ${counted(s.messages, "message")}`;
  const used = s.bound === "bytes" ? `${mebibytes(s.bytes)} of ${mebibytes(s.max_bytes ?? 0)}` : `${count(s.messages)} of ${count(s.max_messages ?? 0)} messages`;
  return `${name(s.stream)} is ${percent(s.used_ratio)} full (${used}); a full one ${s.discards_old ? "deletes its oldest messages" : "refuses new messages"}`;
}
const mebibytes = n => (n / 1048576).toFixed(1) + " MiB";
const streamLines = data => fullStreams(data).map(s => ["stream " + s.stream, "Stream " + streamText(s)]);

// settingsLines name which replicas have other settings, and whose limits are shown where that is not clear.
function settingsLines(data) {
  const { own_text: own, warnings = [] } = data.settings ?? {};
  const lines = own && replicasOf(data) > 0 ? [own, ...warnings] : warnings;
  return lines.map(line => ["settings " + line, plain(line)]);
}

function countsLines(data) {
  const redis = data.this?.redis;
  return redis?.state === "counts_only" ? [["counts", `Counts are not stored: ${plain(redis.reason)}`]] : [];
}

// silentLines name replicas that do not report, and those that are not ready and do not say what they wait for. While Redis stores
// no reports all others are silent, and that is said already.
function silentLines(data) {
  const lines = [], stored = (data.this?.redis.state ?? "ok") === "ok";
  for (const r of data.replicas) {
    const silent = when(data.time) - when(r.seen);
    if (silent >= SILENT && stored) lines.push(["silent " + r.id, `Replica ${name(r.id)} has not reported for ${span(silent)}`]);
    else if (!r.ready && !r.waits?.length && when(data.time) - when(r.started) > STARTING) lines.push(["unready " + r.id, `Replica ${name(r.id)} is not ready`]);
  }
  return lines;
}

const fullLines = (data, kind) => kind.startsWith("full") || !data.global || !isFull(data.global) ? []
  : [["full", `The global limit is full until ${clock(freeAt(data.global))}: everything is dropped`]];

const steeringText = o => `${o.kind === "mute" ? "mute of " + name(o.target) : `limit ${plain(o.limit)} of ${name(o.target)}`} until ${clock(when(o.until))}${o.by ? ", by " + isolated(o.by) : ""}${o.reason ? ": " + isolated(o.reason) : ""}`;
function steeringLines(data) {
  const orders = data.steering ?? [], more = data.more_steering ?? 0;
  if (orders.length + more > 3) return [["steering", `${count(orders.length + more)} mutes and limits for a while are in force`]];
  return orders.map(o => [`steering ${o.kind} ${o.target}`, "In force: " + steeringText(o)]);
}

// showAttention shows the list for a status, or for what this worker knows where there is no status.
function showAttention() {
  const view = state.error ? ofThis(state.failed?.this) : state.data;
  const lines = view ? attentionOf(view, state.error ? "" : describe().kind) : [];
  if (state.error) lines.unshift({ key: "error", level: "bad", text: isolated(state.error) });
  const more = lines.length - MOST_LINES;
  if (more > 0) lines.splice(MOST_LINES, more, { key: "more", level: "note", text: `and ${counted(more, "more", "more")}` });
  sync($("attention"), lines, line => line.key, () => el("li"), (li, line) => {
    setSentence(li, line.text);
    setAttribute(li, "class", line.level);
  });
  $("attention-title").hidden = lines.length === 0;
}

// ofThis is what a worker knows by itself, in the form of a status.
function ofThis(own) {
  if (!own) return null;
  const replica = { id: own.replica, waits: own.waits, refused_channels: own.refused_channels, ready: own.ready, seen: own.time, started: own.time };
  return { time: own.time, replicas: [replica], unposted: own.unposted, streams: own.streams, paused: own.paused };
}

// showThis shows what the worker that answers knows by itself. It opens where there is nothing else.
function showThis() {
  const own = state.error ? state.failed?.this : state.data?.this;
  $("this-section").hidden = !own;
  if (!own) return;
  const held = Object.entries(own.held_for ?? {}).map(([why, n]) => `${plain(why)} ${count(n)}`).join(", ");
  const facts = [
    ["Replica", plain(own.replica)], ["Host", plain(own.host)], ["Version", plain(own.version)], ["Running for", span(own.uptime_s * 1000)],
    ["Ready", own.ready ? "yes" : "no"], ["Events in flight", `${count(own.in_flight)}, ${count(own.posting)} being posted`],
    ["Held events", count(own.held) + (held ? ` (${held})` : "")], ["Last sent", own.last_sent ? clock(when(own.last_sent)) : "nothing since it was started"],
    ["Paused channels", (own.paused ?? []).map(p => `${name(p.channel)} for ${span(p.left_s * 1000)}`).join(", ") || "none"],
    ["Redis", own.redis.state === "ok" ? "stores everything" : `${plain(own.redis.text)} (since ${clock(when(own.redis.since))}): ${plain(own.redis.reason)}`],
    ...(own.streams ?? []).map(s => ["Stream", streamText(s)]),
  ];
  sync($("this"), facts.map(([title, text], i) => ({ key: title + i, title, text })), f => f.key, () => el("div", "", el("dt"), el("dd")), (div, f) => {
    setText(div.firstChild, f.title);
    setSentence(div.lastChild, f.text);
  });
}

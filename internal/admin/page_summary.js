// The sentence and what needs attention, which the server has made, and what this worker knows by itself: a part of the page's
// script, see page.js.

const freeAt = scope => Math.max(when(scope.next_free), 0);
const isFull = scope => freeAt(scope) > now();
const fullest = scope => scope.tiers.reduce((a, b) => b.used * a.max > a.used * b.max ? b : a);
const keptOnly = tier => tier.kept > 0 && tier.used < tier.max && tier.used + tier.kept >= tier.max;

// replicasOf is how many replicas run; not all need be listed.
const replicasOf = data => data.replicas.length + (data.more_replicas ?? 0);

// summaryOf is the server's, or what the page alone knows: that there is no server.
function summaryOf({ data, failed, lost }) {
  const at = data ? ` The rest below is as it was at ${clock(when(data.time))}.` : "";
  if (lost) return { kind: "lost", level: "bad", title: "not connected", text: `Not connected since ${contactAt()}: trying again.` + at, attention: [] };
  if (failed) return { ...failed.summary, text: failed.summary.text + at };
  return data?.summary ?? { kind: "", level: "none", title: "", text: "Loading the status.", attention: [] };
}
const contactAt = () => clock(state.answered + (state.ahead ?? 0));

let announced = "";
function showSummary() {
  const s = summaryOf(state);
  setText($("sentence"), s.text);
  setAttribute($("now"), "data-level", s.level);
  $("all").classList.toggle("stale", state.lost || state.failed !== null);
  document.title = (s.title ? plain(s.title) + " · " : "") + "notifier";
  setIcon(s.level);
  sync($("attention"), s.attention, line => line.kind, () => el("li"), (li, line) => {
    setText(li, line.text);
    setAttribute(li, "class", line.level);
  });
  $("attention-title").hidden = s.attention.length === 0;
  const bad = s.attention.filter(line => line.level === "bad"), said = [s, ...bad].map(line => line.kind).join();
  if (said !== announced) { // not with each figure, because a screen reader reads it out
    announced = said;
    setText($("announce"), [s, ...bad].map(line => line.text).join(" "));
  }
}

const ICONS = { none: "#6b7280", ok: "#16a34a", note: "#d97706", bad: "#dc2626" };
function setIcon(level) {
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill="${ICONS[level]}"/></svg>`;
  setAttribute($("icon"), "href", "data:image/svg+xml," + encodeURIComponent(svg));
}

// showThis shows what the worker that answers knows by itself. It opens where there is nothing else.
function showThis() {
  const own = state.failed ? state.failed.this : state.data?.this;
  $("this-section").hidden = !own;
  if (!own) return;
  const held = Object.entries(own.held_for ?? {}).map(([why, n]) => `${why} ${count(n)}`).join(", ");
  const facts = [
    ["Replica", own.replica], ["Host", own.host], ["Version", own.version], ["Running for", span(own.uptime_s * 1000)],
    ["Ready", own.ready ? "yes" : "no"], ["Events in flight", `${count(own.in_flight)}, ${count(own.posting)} being posted`],
    ["Held events", count(own.held) + (held ? ` (${held})` : "")], ["Last sent", own.last_sent ? clock(when(own.last_sent)) : "nothing since it was started"],
    ["Paused channels", (own.paused ?? []).map(p => `${p.channel} for ${span(p.left_s * 1000)}`).join(", ") || "none"],
    ["Redis", own.redis.state === "ok" ? "stores everything" : `${own.redis.text}: ${own.redis.reason}`],
  ];
  sync($("this"), facts, ([title]) => title, () => el("div", "", el("dt"), el("dd")), (div, [title, text]) => {
    setText(div.firstChild, title);
    setText(div.lastChild, text);
  });
}

// Nodes and charts: a part of the page's script, see page.js.

// --- nodes -----------------------------------------------------------------------------------------------------------

// Nodes are updated and not replaced: what is selected or focused stays so, and nothing flickers.
function setText(node, text) {
  const shown = plain(text);
  if (node.textContent !== shown) node.textContent = shown;
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

// sync makes the children of a node match the items: new ones are created, known ones are moved, all are updated. Where several
// items have the same key, the first takes the known node; what is left over at the end is removed.
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
  while (parent.children.length > items.length) parent.lastElementChild.remove();
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
  const [sent, dropped] = hourPaths(minutes ?? [], first);
  setAttribute(svg.querySelector(".sent"), "d", sent);
  setAttribute(svg.querySelector(".dropped"), "d", dropped);
}

function hourText(scope) {
  if (!scope.minutes) return `${count(scope.sent_last_hour)} sent and ${count(scope.dropped_last_hour)} dropped in the last hour; not drawn for so many categories`;
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
  setText($("timeline-text"), data.slots_in_buckets ? inBucketsText(tier) : timelineText(frees, tier));
}

function inBucketsText(tier) {
  return `${count(tier.used)} slots of ${tier.limit} are taken. When each is free is not known: they are counted in buckets.`;
}

function timelineText(frees, tier) {
  if (frees.length === 0) return "All slots are free.";
  const at = i => clock(frees[i]), last = frees.length - 1;
  if (last === 0) return `One slot of ${tier.limit} is taken; it is free at ${at(0)}.`;
  const part = frees.length >= MOST_SLOTS && tier.used > frees.length ? ` These are the newest ${count(frees.length)} of ${count(tier.used)}.` : "";
  return `${count(frees.length)} slots of ${tier.limit} are taken. The first is free at ${at(0)}, half of them by ${at(last >> 1)}, all by ${at(last)}.` + part;
}


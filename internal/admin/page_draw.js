// Draws the status: the second part of the page's script, see page.js.

// --- nodes -----------------------------------------------------------------------------------------------------------

// Nodes are updated and not replaced: what is selected or focused stays so, and nothing flickers.
function setText(node, text) { setSentence(node, plain(text)); }

// setSentence is setText for words of ours around names and plain texts, so that the isolates in it are name's.
function setSentence(node, text) {
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

// --- sections --------------------------------------------------------------------------------------------------------

function showFacts(data) {
  const tier = fullest(data.global), ready = data.ready_replicas ?? data.replicas.filter(r => r.ready).length, all = replicasOf(data);
  setText($("fact-slots"), `${count(tier.used)} of ${count(tier.max)}`);
  setText($("fact-sent"), count(data.global.sent_last_hour));
  setText($("fact-dropped"), count(data.global.dropped_last_hour));
  setText($("fact-held"), count(data.held));
  setText($("fact-replicas"), all === 0 ? "none" : ready === all ? `${count(ready)} ready` : `${count(ready)} of ${count(all)} ready`);
}

// setTier shows how much of a tier is used, as a text and as a bar.
function setTier(node, tier, label) {
  if (!node.firstChild) {
    const bar = el("span", "bar", el("span"));
    bar.setAttribute("role", "meter");
    node.append(el("span"), bar);
  }
  const [text, bar] = node.children;
  const used = `${count(tier.used)} of ${count(tier.max)} ${windowText(tier.limit)}` + (tier.kept ? `, ${count(tier.kept)} kept` : "");
  setText(text, used);
  node.classList.toggle("full", tier.free_in_s > 0 || keptOnly(tier));
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
    setMoment(node.children[1], free, keptOnly(tier) ? "room only for those it is kept for" : "room now", free ? "full until then" : "");
  });
  drawTimeline(data);
  showSteering(data);
  showHolders(data);
  showReserves(data);
  if ($("slots").open) showSlots(data);
}

function showHolders(data) {
  const most = data.holders ?? [], parts = most.map(({ category, slots }) => `${category ? name(category) : "no longer known"} ${count(slots)}`);
  if (data.more_holders > 0) parts.push(`and ${counted(data.more_holders, "more", "more")}`);
  const none = data.slots_in_buckets ? "Who holds the slots is not known: they are counted in buckets, without the events." : "No slots are taken.";
  setSentence($("holders"), parts.length ? "Held by: " + parts.join(", ") + "." : none);
}

function showSteering(data) {
  const parts = (data.steering ?? []).map(o => `${o.kind === "mute" ? "mute of " + name(o.target) : `limit ${o.limit} of ${name(o.target)}`} until ${clock(when(o.until))}${o.by ? ", by " + isolated(o.by) : ""}${o.reason ? ": " + isolated(o.reason) : ""}`);
  if (data.more_steering > 0) parts.push(`and ${counted(data.more_steering, "more", "more")}`);
  setSentence($("steering"), parts.length ? "In force for a while: " + parts.join("; ") + "." : "");
  $("steering").hidden = parts.length === 0;
}

function showReserves(data) {
  const parts = (data.reserves ?? []).map(r => `${name(r.category)} ${count(r.kept)} of ${count(r.slots)}`);
  if (data.more_reserves > 0) parts.push(`and ${counted(data.more_reserves, "more", "more")}`);
  setSentence($("reserves"), parts.length ? "Kept for: " + parts.join(", ") + "." : "");
  $("reserves").hidden = parts.length === 0;
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

function makeScope() {
  const tr = row(["name"], ["used", "Used"], ["next", "Next free"], ["sent number", "Sent, 1 h"], ["dropped number", "Dropped, 1 h"], ["chart", "Last hour"], ["last", "Last sent"]);
  cell(tr, "name").append(el("bdi"));
  cell(tr, "dropped").append(el("b"));
  cell(tr, "chart").append(hourChart());
  return tr;
}

// showNext shows when an event of a scope would be sent, as far as all its limits go, and which other limit it waits for.
const OTHERS = { group: "group limit", global: "global limit", muted: "muted" };
function showNext(node, scope, own) {
  const f = scope.forecast;
  if (!f || f.sends) return setMoment(node, 0, "now");
  if (f.held) return setMoment(node, 0, "key damaged");
  const note = f.kept > 0 ? "at the earliest: " + (f.left > 0 ? "kept for others" : "global limit") : f.reason === own ? "" : OTHERS[f.reason] ?? plain(f.reason);
  setMoment(node, when(f.at), "not known", note);
}

// showScope shows a group or a category, whose own limit refuses with the reason own.
function showScope(tr, scope, title, own, first) {
  setText(cell(tr, "name").firstChild, title);
  sync(cell(tr, "used"), scope.tiers, t => t.limit, () => el("div", "tier"), (node, tier) => setTier(node, tier, "Limit " + tier.limit));
  showNext(cell(tr, "next"), scope, own);
  setText(tr.children[3], count(scope.sent_last_hour));
  setText(tr.children[4].firstChild, count(scope.dropped_last_hour));
  tr.children[4].firstChild.classList.toggle("zero", scope.dropped_last_hour === 0);
  const svg = cell(tr, "chart").querySelector("svg");
  drawHour(svg, scope.minutes, first);
  svg.classList.toggle("left-out", !scope.minutes);
  setAttribute(svg, "aria-label", hourText(scope));
  setMoment(cell(tr, "last"), when(scope.last_sent), "–");
}

function showGroups(data) {
  const groups = data.groups ?? [];
  sync(tbody("groups"), groups, s => s.group, makeScope, (tr, scope) => showScope(tr, scope, scope.group, "group", firstMinute(data)));
  $("group-section").hidden = groups.length === 0;
  setText($("more-groups"), data.more_groups > 0 ? `and at least ${counted(data.more_groups, "more group", "more groups")}` : "");
}

function showCategories(data) {
  sync(tbody("categories"), data.categories, s => s.category, makeScope, (tr, scope) => {
    showScope(tr, scope, scope.category === "_other" ? "other categories" : scope.category, "category", firstMinute(data));
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
    setText(cell(tr, "waits"), (replica.waits ?? []).map(w => w.channel || w.for).join(", ") || "nothing");
    setMoment(cell(tr, "started"), when(replica.started));
    setMoment(cell(tr, "seen"), when(replica.seen));
    setText(cell(tr, "version"), replica.version);
  });
  $("replicas").hidden = data.replicas.length === 0;
  $("no-replicas").hidden = replicasOf(data) > 0;
  setText($("more-replicas"), data.more_replicas > 0 ? `and ${counted(data.more_replicas, "more replica", "more replicas")}` : "");
  const refused = new Map();
  for (const replica of data.replicas) for (const [channel, code] of Object.entries(replica.refused_channels ?? {})) refused.set(channel, code);
  sync(document.querySelector("#refused ul"), [...refused], ([channel]) => channel, () => el("li", "", el("bdi"), el("span")), (li, [channel, code]) => {
    setText(li.firstChild, channel);
    setText(li.lastChild, ": " + code);
  });
  $("refused").hidden = refused.size === 0;
}

function showWaits(data) {
  sync($("waits"), waitsOf(data), w => w.key, () => el("li"), (li, wait) => setSentence(li, waitText(wait)));
  sync($("unposted"), keptBack(data), u => u.channel, () => el("li"), (li, unposted) => setSentence(li, unpostedText(unposted)));
}

// showSettings shows which replicas have other settings, and whose limits are shown where that is not clear.
function showSettings(data) {
  const { own_text: own, warnings = [] } = data.settings ?? {};
  const lines = own && replicasOf(data) > 0 ? [own, ...warnings] : warnings;
  sync($("warnings"), lines, line => line, () => el("li"), setText);
}

// showError shows why the server has no status, in the place of what the replicas wait for.
function showError(error) {
  sync($("waits"), error ? [error] : [], e => e, () => el("li"), setText);
}

function show(data) {
  showFacts(data);
  showWaits(data);
  showSettings(data);
  showGlobal(data);
  showGroups(data);
  showCategories(data);
  showHour(data);
  showReplicas(data);
  setSentence($("missed"), missedText(data));
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

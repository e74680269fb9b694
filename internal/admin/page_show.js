// What is shown in each section: a part of the page's script, see page.js.

// --- sections --------------------------------------------------------------------------------------------------------

function showFacts(data) {
  const tier = fullest(data.global);
  setText($("fact-slots"), `${count(tier.used)} of ${count(tier.max)}`);
  setText($("fact-sent"), count(data.global.sent_last_hour));
  setText($("fact-dropped"), count(data.global.dropped_last_hour));
  setText($("fact-held"), count(data.held));
  setText($("fact-replicas"), replicasText(data));
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
  section("slots", true, data.slots_in_buckets ? "counted in buckets" : `${count(fullest(data.global).used)} taken`);
  if ($("slots").open) showSlots(data);
}

function showHolders(data) {
  const most = data.holders ?? [], parts = most.map(({ category, slots }) => `${category ? name(category) : "no longer known"} ${count(slots)}`);
  if (data.more_holders > 0) parts.push(`and ${counted(data.more_holders, "more", "more")}`);
  const none = data.slots_in_buckets ? "Who holds the slots is not known: they are counted in buckets, without the events." : "No slots are taken.";
  setText($("holders"), parts.length ? "Held by: " + parts.join(", ") + "." : none);
}

const steeringText = o => `${o.kind === "mute" ? "mute" : "limit " + o.limit} of ${o.target} until ${clock(when(o.until))}${o.by ? ", by " + o.by : ""}${o.reason ? ": " + o.reason : ""}`;
function showSteering(data) {
  const orders = data.steering ?? [], more = data.more_steering ?? 0;
  sync($("steering"), orders, o => o.kind + " " + o.target, () => el("li"), (li, o) => setText(li, steeringText(o)));
  setText($("more-steering"), more > 0 ? `and ${counted(more, "more", "more")}` : "");
  section("steering-section", orders.length + more > 0, `${count(orders.length + more)} in force`);
}

function showReserves(data) {
  const parts = (data.reserves ?? []).map(r => `${name(r.category)} ${count(r.kept)} of ${count(r.slots)}`);
  if (data.more_reserves > 0) parts.push(`and ${counted(data.more_reserves, "more", "more")}`);
  setText($("reserves"), parts.length ? "Kept for: " + parts.join(", ") + "." : "");
  const kept = (data.reserves ?? []).reduce((sum, r) => sum + r.kept, 0);
  section("reserve-section", parts.length > 0, `${counted(kept, "slot")} kept`);
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
  cell(tr, "name").append(el("bdi"), el("small", "sources"));
  cell(tr, "dropped").append(el("b"));
  cell(tr, "chart").append(hourChart());
  return tr;
}

// showNext shows when an event of a scope would be sent, as far as all its limits go, and which other limit it waits for.
const OTHERS = { group: "group limit", global: "global limit", muted: "muted" };
function showNext(node, scope, own) {
  const f = scope.forecast;
  if (!f || f.sends) return setMoment(node, 0, "now");
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
  section("group-section", groups.length > 0, scopesText(groups, data.more_groups));
  setText($("more-groups"), data.more_groups > 0 ? `and at least ${counted(data.more_groups, "more group", "more groups")}` : "");
}

// sourcesOf is who has caused the events of a category in the last hour, as publishers say, those with the most refused events first.
// The names are publishers': one that every object has, such as "constructor", is not in it.
const sourcesOf = (data, category) => Object.hasOwn(data.sources ?? {}, category) ? data.sources[category] : [];
const sourceName = source => source === "" ? "not named" : source === "_other" ? "other sources" : name(source);

function sourcesText(counts) {
  const shown = counts.slice(0, MOST_SOURCES).map(s => `${sourceName(s.source)} ${count(s.total)}` + (s.refused ? ` (${count(s.refused)} refused)` : ""));
  const more = counts.length - shown.length;
  return shown.length === 0 ? "" : "from " + shown.join(", ") + (more > 0 ? `, and ${counted(more, "more", "more")}` : "");
}

function showCategories(data) {
  sync(tbody("categories"), data.categories, s => s.category, makeScope, (tr, scope) => {
    showScope(tr, scope, scope.category === "_other" ? "other categories" : scope.category, "category", firstMinute(data));
    setText(cell(tr, "sources"), sourcesText(sourcesOf(data, scope.category)));
  });
  $("categories").hidden = data.categories.length === 0;
  const more = data.more_categories;
  section("category-section", true, scopesText(data.categories, more));
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
  section("hour-section", true, `${count(data.global.sent_last_hour)} sent, ${count(data.global.dropped_last_hour)} dropped, ${count(data.outcomes_last_hour.reduce((sum, o) => sum + (o.outcome === "dead" ? o.n : 0), 0))} dead`);
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
  section("replica-section", true, replicasText(data));
}

// showChannels shows what waits for each channel, which channels are paused, and which refuse everything.
function showChannels(data) {
  const unposted = data.unposted ?? [], pauses = data.slack_pauses ?? [];
  const refused = data.summary.attention.filter(line => line.kind.startsWith("refused "));
  const lines = [...unposted, ...pauses, ...refused].map(line => line.text);
  sync($("channels"), lines, line => line, () => el("li"), setText);
  const waiting = unposted.reduce((sum, u) => sum + u.events, 0);
  section("channel-section", true, [counted(waiting, "event waits", "events wait"), pauses.length ? `${count(pauses.length)} paused` : "", refused.length ? `${count(refused.length)} refusing` : ""].filter(Boolean).join(", "));
  $("no-channels").hidden = lines.length > 0;
}

// showSettings shows whether all replicas have the same settings, and what is not the same, in the server's words.
function showSettings(data) {
  const { fingerprint, replicas = 0, own_text: own, warnings = [] } = data.settings ?? {};
  setText($("settings"), fingerprint ? `The limits above are those of ${counted(replicas, "replica")} (settings ${fingerprint}).` : own ?? "");
  sync($("differences"), warnings, line => line, () => el("li"), setText);
  section("settings-section", Boolean(fingerprint || own || warnings.length), warnings.length ? "not the same in all replicas" : "the same in all replicas");
}

// section shows a section that folds, with a note on its summary; or hides it where there is nothing to show.
function section(id, there, note) {
  $(id).hidden = !there;
  setText($(id).querySelector("summary small"), note);
}

function scopesText(scopes, more) {
  const full = scopes.filter(isFull).length;
  return count(scopes.length + Math.max(0, more ?? 0)) + (full ? `, ${count(full)} full` : "");
}

function replicasText(data) {
  const ready = data.ready_replicas, all = replicasOf(data);
  return all === 0 ? "none" : data.summary.level === "bad" ? count(all) : ready === all ? `${count(ready)} ready` : `${count(ready)} of ${count(all)} ready`;
}

function show(data) {
  showFacts(data);
  showChannels(data);
  showSettings(data);
  showGlobal(data);
  showGroups(data);
  showCategories(data);
  showHour(data);
  showReplicas(data);
  $("all").hidden = false;
}

// tick updates what changes with time alone.
function tick() {
  showSummary();
  showThis();
  for (const small of document.querySelectorAll("[data-moment]")) tickMoment(small);
  const { data, lost, failed } = state;
  if (data) {
    const left = when(data.time) + data.slack_cooldown_s * 1000 - now();
    setText($("fact-pause"), left > 0 ? span(left) : "none");
  }
  setText($("contact"), lost ? "not connected since " + contactAt() : data || failed ? "live, " + contactAt() : "connecting");
}

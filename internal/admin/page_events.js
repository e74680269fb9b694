// Recent events, from api/events: a part of the page's script, see page.js. They are asked for only while the section is open.

const EVENTS_INTERVAL = 10000;   // ms between two requests
const EVENTS_TYPING = 400;       // ms without a key until a filter counts
const MOST_EVENTS = 100;

let eventsTimer = 0, eventsRequest = null;

const filter = () => ({ category: $("event-category").value.trim(), outcome: $("event-outcome").value });

async function pollEvents() {
  stopEvents();
  if (document.hidden || !$("event-section").open) return;
  const mine = eventsRequest = new AbortController();
  const timeout = setTimeout(() => mine.abort(), REQUEST_TIMEOUT);
  let found = null;
  try {
    found = await fetchEvents(filter(), mine.signal);
  } catch {
    // no response, or not in time, or not from notifier
  } finally {
    clearTimeout(timeout);
  }
  if (eventsRequest !== mine) return; // another request has replaced this one
  eventsTimer = setTimeout(pollEvents, EVENTS_INTERVAL);
  showEvents(found);
}

function stopEvents() {
  clearTimeout(eventsTimer);
  eventsRequest?.abort();
  eventsRequest = null;
}

async function fetchEvents({ category, outcome }, signal) {
  const url = new URL("api/events", location.origin + location.pathname);
  url.searchParams.set("n", MOST_EVENTS);
  if (category) url.searchParams.set("category", category);
  if (outcome) url.searchParams.set("outcome", outcome);
  const response = await fetch(url, { cache: "no-store", signal });
  if (response.status === 404) return { error: "this worker does not serve recent events" };
  const body = await response.json();
  if (response.ok ? !Array.isArray(body.events) : typeof body.error !== "string") throw new Error("HTTP " + response.status);
  return body;
}

// showEvents shows an answer; null: there was none, and what was shown before stays.
function showEvents(found) {
  if (!found) return setText($("events-note"), "No answer: trying again.");
  if (found.error) return setText($("events-note"), "Not known: " + found.error);
  const keyed = found.events.map((e, i) => ({ ...e, key: e.seq ? `${e.worker ?? ""} ${e.seq}` : `${e.time} ${e.category} ${e.event_id} ${i}` }));
  sync(tbody("events"), keyed, e => e.key, makeEvent, showEvent);
  $("events").hidden = found.events.length === 0;
  setText($("events-note"), eventsText(found));
}

function eventsText(found) {
  const leftOut = found.events.reduce((sum, e) => sum + (e.left_out ?? 0) + (e.left_out_others ?? 0), 0);
  const shown = found.events.length > 0 ? `The newest ${counted(found.events.length, "event")}.` : found.note ? plain(found.note) + "." : "There are none.";
  return shown + (leftOut > 0 ? ` Besides, ${counted(leftOut, "event was", "events were")} not recorded, because there were too many.` : "") + (found.partial ? " There may be others, which were not looked at." : "");
}

const makeEvent = () => row(["at"], ["category", "Category"], ["outcome", "Outcome"], ["why wide", "Why"], ["event", "Event"], ["source", "Source"]);

function showEvent(tr, e) {
  setText(cell(tr, "at"), clock(when(e.time)));
  setText(cell(tr, "category"), e.category);
  setText(cell(tr, "outcome"), [e.outcome, e.reason].filter(Boolean).join(" "));
  setText(cell(tr, "why"), whyText(e));
  setText(cell(tr, "event"), e.event_id);
  setText(cell(tr, "source"), e.source ?? "");
}

function whyText(e) {
  const left = (e.left_out ?? 0) + (e.left_out_others ?? 0);
  return [
    e.channel && e.outcome === "sent" ? "in " + e.channel : e.channel ?? "",
    e.limit ? `limit ${e.limit}${e.above_limit ? ", which is below its cost" : `, room after ${span((e.retry_after_s ?? 0) * 1000)}${e.retry_after_at_least ? " or later" : ""}`}` : "",
    e.mute ? `mute of ${e.mute}${e.muted_until ? " until " + clock(when(e.muted_until)) : ""}${e.muted_by ? " by " + e.muted_by : ""}` : "",
    e.detail ?? "", e.ambiguous ? "may be there twice" : "", e.no_letter ? "no dead letter" : "", e.letter_seq ? "letter " + e.letter_seq : "",
    left > 0 ? `${counted(left, "more was", "more were")} not recorded` : "",
  ].filter(Boolean).join("; ");
}

// --- the address -----------------------------------------------------------------------------------------------------

// What is open and the filter are in the query of the page's address, so that a link shows the same.
function remember() {
  const query = new URLSearchParams();
  const open = Array.from(document.querySelectorAll("details[open]"), d => d.id).filter(id => id !== "this-section");
  const { category, outcome } = filter();
  if (open.length) query.set("open", open.join(","));
  if (category) query.set("category", category);
  if (outcome) query.set("outcome", outcome);
  const text = query.toString();
  try {
    history.replaceState(null, "", text ? "?" + text : location.pathname);
  } catch {
    // the browser refuses it for some addresses; the page works without
  }
}

function restore() {
  const query = new URLSearchParams(location.search);
  $("event-category").value = query.get("category") ?? "";
  $("event-outcome").value = query.get("outcome") ?? "";
  if ($("event-outcome").selectedIndex < 0) $("event-outcome").value = "";
  for (const id of (query.get("open") ?? "").split(",")) {
    const node = id && document.getElementById(id);
    if (node instanceof HTMLDetailsElement) node.open = true;
  }
}

let typing = 0;
function filtered() {
  clearTimeout(typing);
  typing = setTimeout(() => {
    remember();
    pollEvents();
  }, EVENTS_TYPING);
}

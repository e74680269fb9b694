// Polls the status: the last part of the page's script, see page.js.

// --- polling ---------------------------------------------------------------------------------------------------------

let timer = 0, request = null, failures = 0;

async function poll() {
  const mine = request = new AbortController();
  const timeout = setTimeout(() => mine.abort(), REQUEST_TIMEOUT);
  let answer = null;
  try {
    answer = await fetchStatus(mine.signal);
  } catch {
    // no response, or not in time, or not from notifier
  } finally {
    clearTimeout(timeout);
  }
  if (request !== mine) return; // the page was hidden, or another request has replaced this one
  failures = answer ? 0 : failures + 1;
  timer = setTimeout(poll, Math.min(MAX_INTERVAL, INTERVAL * 2 ** Math.max(0, failures - 1)));
  state.lost = !answer;
  if (answer) receive(answer);
  tick();
}

async function fetchStatus(signal) {
  const begun = Date.now();
  // Not relative to the document: its address has the password where somebody opened it with one, and then fetch refuses.
  const response = await fetch(new URL("api/status", location.origin + location.pathname), { cache: "no-store", signal });
  const body = await response.json();
  const worker = response.headers.has("Notifier-Page"); // a proxy's error is not the worker's
  if (!worker || typeof body !== "object" || body === null || !response.ok && typeof body.error !== "string") throw new Error("HTTP " + response.status);
  return { ok: response.ok, body, headers: response.headers, begun };
}

function receive(answer) {
  state.answered = Date.now();
  reloadFor(answer.headers.get("Notifier-Page"));
  if (answer.ok) return showStatus(answer);
  state.failed = answer.body;
  if (!state.opened) $("this-section").open = state.opened = true; // there may be nothing else; who closes it keeps it closed
}

// showStatus shows a status. The clock is adjusted only when it is wrong: otherwise countdowns would jump.
function showStatus({ body: data, headers, begun }) {
  const age = Number(headers.get("Notifier-Age")) * 1000 || 0;
  const ahead = when(data.time) + age + (Date.now() - begun) / 2 - Date.now();
  if (state.ahead === null || Math.abs(ahead - state.ahead) > 500) state.ahead = ahead;
  state.data = data;
  state.failed = null;
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
  request?.abort();
  request = null;
  stopEvents();
  if (document.hidden) return;
  ticking = setInterval(tick, 1000);
  poll();
  pollEvents();
}
document.addEventListener("visibilitychange", visibility);
window.addEventListener("online", visibility);
window.addEventListener("pagehide", () => { // what the browser cuts off then has not failed
  clearTimeout(timer);
  request = null;
  stopEvents();
});
window.addEventListener("pageshow", event => event.persisted && visibility());
restore();
for (const details of document.querySelectorAll("details")) details.addEventListener("toggle", remember);
$("event-section").addEventListener("toggle", pollEvents);
$("event-category").addEventListener("input", filtered);
$("event-outcome").addEventListener("change", filtered);
$("slots").addEventListener("toggle", () => state.data && showSlots(state.data));
$("zone").textContent = Intl.DateTimeFormat().resolvedOptions().timeZone || "your time zone";
state.answered = Date.now();
visibility();

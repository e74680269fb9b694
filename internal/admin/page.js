"use strict";
// Asks for the page again and again, and shows what the server has drawn. What is open, and which events are
// shown, is in the page's address, so that a link shows the same.

const INTERVAL = 2000;           // ms between two requests
const MAX_INTERVAL = 15000;      // ms between two requests while the server does not respond
const REQUEST_TIMEOUT = 10000;   // ms for one response
const RELOAD_AFTER = 10000;      // ms that a page is shown before it reloads itself for another version
const TYPING = 400;              // ms without a key until a filter counts

const $ = id => document.getElementById(id);
const pad = n => String(n).padStart(2, "0");

// clock is the time of day in the reader's time zone, with the date if it is not today.
function clock(t) {
  const time = [t.getHours(), t.getMinutes(), t.getSeconds()].map(pad).join(":");
  if (t.toDateString() === new Date().toDateString()) return time;
  return [t.getFullYear(), pad(t.getMonth() + 1), pad(t.getDate())].join("-") + " " + time;
}

// asked are the sections that the address opens.
const asked = () => new URLSearchParams(location.search).getAll("open").join().split(",");

// prepare puts into a page what only the browser knows: the reader's time zone, and which sections the
// address opens.
function prepare(page) {
  for (const time of page.querySelectorAll("time")) time.textContent = clock(new Date(time.dateTime));
  page.getElementById("zone").textContent = Intl.DateTimeFormat().resolvedOptions().timeZone || "your time zone";
  const open = asked();
  for (const section of page.querySelectorAll("details")) section.open ||= open.includes(section.id);
}

// update makes a node like another one. Nodes stay, so that what is selected or focused stays so and nothing
// flickers; and so does what belongs to the reader: which sections are open, and what is typed.
function update(node, fresh) {
  if (node.isEqualNode(fresh) || node.dataset?.said && node.dataset.said === fresh.dataset.said) return; // the same is read out once
  if (!(node instanceof Element)) return void (node.data = fresh.data);
  for (const name of new Set([...node.getAttributeNames(), ...fresh.getAttributeNames()])) {
    const value = fresh.getAttribute(name);
    if (name === "open" || node.getAttribute(name) === value) continue;
    if (value === null) node.removeAttribute(name);
    else node.setAttribute(name, value);
  }
  const known = [...node.childNodes], keyOf = child => child.id || child.dataset?.key;
  [...fresh.childNodes].forEach((child, i) => {
    const found = known.findIndex(old => old.nodeName === child.nodeName && keyOf(old) === keyOf(child));
    const [old] = found < 0 ? [child] : known.splice(found, 1);
    if (node.childNodes[i] !== old) node.insertBefore(old, node.childNodes[i] ?? null);
    if (found >= 0) update(old, child);
  });
  known.forEach(old => old.remove());
}

let timer = 0, request = null, failures = 0;

async function poll() {
  clearTimeout(timer);
  request?.abort();
  request = null;
  if (document.hidden) return; // a hidden page makes no requests
  const mine = request = new AbortController();
  let page = null;
  try {
    page = await load(AbortSignal.any([mine.signal, AbortSignal.timeout(REQUEST_TIMEOUT)]));
  } catch {
    // no response, or not in time, or not from notifier
  }
  if (request !== mine) return; // another request has replaced this one
  failures = page ? 0 : failures + 1;
  timer = setTimeout(poll, Math.min(MAX_INTERVAL, INTERVAL * 2 ** Math.max(0, failures - 1)));
  if (page) show(page);
  else showLost();
}

async function load(signal) {
  // Not relative to the document: its address has the password where somebody opened it with one, and then
  // fetch refuses.
  const response = await fetch(new URL(location.pathname + location.search, location.origin), { cache: "no-store", signal });
  const page = new DOMParser().parseFromString(await response.text(), "text/html"); // which runs and loads nothing
  if (!page.querySelector("meta[name=version]")) throw new Error("HTTP " + response.status); // a proxy's error is not the worker's
  return page;
}

const versionOf = page => page.querySelector("meta[name=version]").content;

function show(page) {
  // Not at once, so that two versions behind one address do not make the page reload again and again.
  if (versionOf(page) !== versionOf(document) && performance.now() > RELOAD_AFTER) return location.reload();
  prepare(page);
  document.title = page.title;
  for (const selector of ["#icon", "#contact", "main"]) update(document.querySelector(selector), page.querySelector(selector));
}

// showLost says that there is no server. The rest stays as it was.
function showLost() {
  const text = `Not connected since ${document.querySelector("#contact time").textContent}: trying again.`;
  if ($("sentence").firstChild.textContent === text) return;
  $("sentence").firstChild.textContent = $("announce").textContent = text;
  $("announce").dataset.said = "lost";
  $("contact").firstChild.textContent = "not connected since ";
  $("now").dataset.level = "bad";
  $("icon").href = $("icon").href.replace(/%23\w+/, "%23dc2626");
  $("attention").replaceChildren();
  $("attention-title").hidden = true;
  document.querySelector("main").classList.add("stale");
  document.title = "not connected · notifier";
}

// remember puts what is open and the filter into the address, and asks for what belongs to it. What the page does
// not have now stays in the address: without Redis there are no sections, and they come back.
function remember() {
  const query = new URLSearchParams();
  const open = Array.from(document.querySelectorAll("#all details[open], #event-section[open]"), details => details.id);
  open.push(...asked().filter(id => id && !$(id)));
  if (open.length) query.set("open", open.join(","));
  for (const name of ["category", "outcome"]) {
    const value = $("event-" + name)?.value.trim() ?? new URLSearchParams(location.search).get(name);
    if (value) query.set(name, value);
  }
  const text = query.toString();
  if (text === location.search.slice(1)) return;
  try {
    history.replaceState(null, "", text ? "?" + text : location.pathname);
  } catch {
    // the browser refuses it for some addresses, or for too many changes; the page works without
  }
  poll();
}

let typing = 0;
document.addEventListener("toggle", remember, true);
document.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(remember, TYPING);
});
document.addEventListener("visibilitychange", poll);
window.addEventListener("online", poll);
window.addEventListener("pagehide", () => { // what the browser cuts off then has not failed
  clearTimeout(timer);
  request = null;
});
window.addEventListener("pageshow", event => event.persisted && poll());
prepare(document);
poll();

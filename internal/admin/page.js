"use strict";
// Fetches the page every few seconds and applies the differences to this document.

const INTERVAL = 5000; // ms
const TIMEOUT = 10000; // ms

// update makes node equal to fresh. It keeps nodes in place, because a replaced or moved node would lose
// focus, selection and scroll position.
function update(node, fresh) {
  if (node.isEqualNode(fresh)) return;
  if (node.nodeType !== Node.ELEMENT_NODE) {
    node.data = fresh.data;
    return;
  }
  for (const name of new Set([...node.getAttributeNames(), ...fresh.getAttributeNames()])) {
    if (fresh.hasAttribute(name)) node.setAttribute(name, fresh.getAttribute(name));
    else node.removeAttribute(name);
  }
  const key = child => child.nodeName + (child.id || child.nodeName === "TR" && child.firstChild.textContent);
  const rest = [...node.childNodes];
  const pairs = [...fresh.childNodes].map(child => {
    let at = rest.findIndex(old => old.isEqualNode(child));
    if (at < 0) at = rest.findIndex(old => key(old) === key(child));
    return [at < 0 ? child : rest.splice(at, 1)[0], child];
  });
  rest.forEach(old => old.remove());
  pairs.forEach(([kept, child], i) => {
    if (kept !== node.childNodes[i]) node.insertBefore(kept, node.childNodes[i] ?? null);
    if (kept !== child) update(kept, child);
  });
}

async function load() {
  // fetch refuses the document's own address if it contains a password.
  const address = new URL(location.pathname + location.search, location.origin);
  const response = await fetch(address, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT) });
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const version = page.documentElement.dataset.version;
  if (!version) throw new Error("not a page of notifier"); // such as an error of a proxy
  if (version !== document.documentElement.dataset.version) location.reload();
  return page;
}

let timer;

async function refresh() {
  if (document.hidden) return;
  let page = null;
  try {
    page = await load();
  } catch {
    // shown below
  }
  document.body.classList.toggle("lost", !page);
  if (page) {
    document.title = page.title;
    update(document.querySelector("main"), page.querySelector("main"));
  } else {
    document.title = "not updated · notifier";
    document.getElementById("contact").textContent =
      `not updated since ${document.getElementById("time").textContent}: the worker does not answer`;
  }
  clearTimeout(timer);
  timer = setTimeout(refresh, INTERVAL);
}

document.addEventListener("visibilitychange", refresh);
timer = setTimeout(refresh, INTERVAL);

// Makes the view what the server drew last, changing only what differs: focus, scroll and half-typed text stay.

const policy = window.trustedTypes?.createPolicy("steersman", { createHTML: (text) => text });

// The text is a whole page of this server, in which everything from the cluster is escaped; it is parsed as a document
// of its own, in which no script runs.
export function morph(page, view, text) {
  const fresh = new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "text/html");
  const after = fresh.getElementById("view");
  if (!after) return;
  page.title = fresh.title;
  for (const id of ["process"]) {
    const [old, now] = [page.getElementById(id), fresh.getElementById(id)];
    if (old && now) become(old, now);
  }
  children(view, after);
}

function become(old, now) {
  if (old.hasAttribute?.("data-keep")) return;
  for (const { name } of [...old.attributes]) if (!now.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.matches("input, select, textarea")) {
    if (old !== document.activeElement && old.matches("input")) old.value = now.value;
    if (old.matches("input")) return;
    if (old === document.activeElement) return;
  }
  children(old, now);
}

function children(old, now) {
  const known = new Map();
  for (const child of old.children) if (child.dataset?.key) known.set(child.dataset.key, child);
  let place = old.firstChild;
  for (const wanted of [...now.childNodes]) {
    const key = wanted.dataset?.key;
    const same = key ? known.get(key) : null;
    if (same) {
      if (same !== place) old.insertBefore(same, place);
      else place = place.nextSibling;
      known.delete(key);
      become(same, wanted);
    } else if (place && !place.dataset?.key && !key && place.nodeType === wanted.nodeType && place.nodeName === wanted.nodeName) {
      if (place.nodeType === Node.ELEMENT_NODE) become(place, wanted);
      else if (place.data !== wanted.data) place.data = wanted.data;
      place = place.nextSibling;
    } else {
      old.insertBefore(document.importNode(wanted, true), place);
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

// What stands beside the map about the one thing that is chosen. Everything from the cluster is text.

export function panel(states) {
  const element = document.createElement("div");
  element.className = "panel";
  element.hidden = true;
  element.setAttribute("aria-live", "polite");
  return { element, show: (node, choose) => show(element, node, choose, states) };
}

function show(element, node, choose, states) {
  element.replaceChildren();
  element.hidden = !node;
  if (!node) return;
  add(element, "span", "quiet", `${node.namespace} / ${node.kind}`);
  const name = add(element, "b", "", "");
  if (node.source) name.textContent = node.name;
  else {
    const link = add(name, "a", "", node.name);
    link.href = workloadAddress(node);
    const [tone, word] = states[node.standing];
    add(element, "span", `state ${tone}`, word);
    add(element, "span", "note", node.reason);
  }
  if (node.missing) add(element, "span", "state bad", "does not exist");
  if (node.source && node.keys.length) {
    const keys = add(element, "span", "changes", "");
    for (const key of node.keys.slice(0, 12)) add(keys, "code", "key", key);
    if (node.keys.length > 12) add(keys, "span", "quiet", `and ${node.keys.length - 12} more`);
  }
  add(element, "span", "quiet", node.source ? `used by ${node.others.length}` : `uses ${node.others.length}`);
  const list = add(element, "ul", "", "");
  for (const other of node.others.slice(0, 12)) {
    const button = add(add(list, "li", "", ""), "button", "icon", `${other.kind}/${other.name}`);
    button.type = "button";
    button.addEventListener("click", () => choose(other));
  }
  if (node.others.length > 12) add(list, "li", "quiet", `and ${node.others.length - 12} more`);
}

// Where a workload has its own page; below whatever path a proxy puts in front.
export function workloadAddress(node) {
  return `${document.body.dataset.root}workloads/${node.id.split("/").map(encodeURIComponent).join("/")}`;
}

function add(parent, tag, name, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.textContent = text;
  parent.append(element);
  return element;
}

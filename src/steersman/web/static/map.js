// The map as a picture: sources on the left, workloads on the right, namespace by namespace. Drawn when something
// changes and never otherwise; every frame's cost is a performance measure called "map frame".
import { arrange, ROW } from "./arrange.js";
import { ask, latest } from "./asking.js";
import { panel, workloadAddress } from "./panel.js";

const TALLEST = 4000; // pixels of the picture on a phone; beyond, fingers zoom and move it
const STATES = JSON.parse(document.getElementById("picture").dataset.states); // state -> colour and word, as everywhere

start(document.getElementById("picture"));

function start(box) {
  box.hidden = false;
  const canvas = document.createElement("canvas");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", "Map of sources and workloads. Arrow keys move, Enter opens, plus and minus zoom.");
  const about = panel(STATES);
  box.append(canvas, about.element, buttons({ in: () => zoomBy(1.3), out: () => zoomBy(1 / 1.3), fit }), signs());
  const draw2d = canvas.getContext("2d");

  const phone = matchMedia("(max-width: 720px)");
  let answer = { sources: [], workloads: [], edges: [] };
  let plan = arrange(answer, 1);
  let ink = colours();
  let [x, y, zoom] = [0, 0, 1];
  let moved = false; // by a person, so that news do not move it
  let chosen = null;
  let over = null;
  let dirty = false;

  // -- what is shown ------------------------------------------------------------------------------------------------

  const load = latest(async () => {
    const asked = await ask(`${document.body.dataset.root}api/v1/map`);
    if (!asked?.answer.ok) return;
    const known = chosen?.id;
    answer = JSON.parse(asked.text);
    plan = arrange(answer, box.clientWidth / Math.max(1, box.clientHeight), phone.matches);
    grow();
    chosen = plan.byId.get(known) ?? null;
    filter();
    if (!moved) fit();
    show();
    redraw();
    canvas.dataset.zoom = zoom;
    canvas.dataset.nodes = plan.nodes.length;
  });

  // on a phone the picture is as high as it needs to be, and the page scrolls over it
  function grow() {
    const zoomed = box.clientWidth / (plan.width + 16);
    canvas.style.height = phone.matches ? `${Math.min(TALLEST, Math.round(plan.height * zoomed + 90))}px` : "";
  }

  function filter() {
    const asked = new URLSearchParams(location.search);
    const text = (asked.get("text") || "").trim().toLowerCase();
    const standing = asked.get("standing") || "";
    const all = !text && !standing;
    const lit = new Set();
    for (const node of plan.nodes) {
      const fits = (!text || node.id.toLowerCase().includes(text)) && (!standing || node.standing === standing);
      if (!all && fits) {
        lit.add(node);
        for (const other of node.others) lit.add(other);
      }
    }
    for (const node of plan.nodes) node.dim = !all && !lit.has(node);
  }

  function fit() {
    const [wide, high] = [box.clientWidth, box.clientHeight];
    const whole = Math.min(wide / (plan.width + 40), high / (plan.height + 40));
    zoom = Math.min(1.25, Math.max(0.02, phone.matches ? wide / (plan.width + 16) : whole));
    x = (wide - plan.width * zoom) / 2;
    y = phone.matches ? 8 : Math.max(20 * zoom, (high - plan.height * zoom) / 2);
    moved = false;
    redraw();
  }

  // -- drawing --------------------------------------------------------------------------------------------------------

  function redraw() {
    if (dirty) return;
    dirty = true;
    requestAnimationFrame(() => {
      dirty = false;
      const began = performance.now();
      draw();
      performance.measure("map frame", { start: began, end: performance.now() });
      if (performance.getEntriesByName("map frame").length > 600) performance.clearMeasures("map frame");
    });
  }

  function size() {
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    canvas.width = Math.max(1, Math.round(box.clientWidth * ratio));
    canvas.height = Math.max(1, Math.round(box.clientHeight * ratio));
    if (!moved) fit();
    redraw();
  }

  function draw() {
    const ratio = canvas.width / Math.max(1, box.clientWidth);
    draw2d.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw2d.clearRect(0, 0, box.clientWidth, box.clientHeight);
    draw2d.setTransform(ratio * zoom, 0, 0, ratio * zoom, ratio * x, ratio * y);
    const seen = { left: -x / zoom, top: -y / zoom, right: (box.clientWidth - x) / zoom, bottom: (box.clientHeight - y) / zoom };
    const focus = over ?? chosen;
    drawBlocks(seen);
    drawEdges(seen, focus);
    if (ROW * zoom < 9) drawDots(seen, focus);
    else drawNodes(seen, focus);
  }

  function drawBlocks(seen) {
    draw2d.fillStyle = ink.quiet;
    draw2d.strokeStyle = ink.line;
    draw2d.lineWidth = 1 / zoom;
    const height = Math.max(15, Math.min(11 / zoom, 60));
    draw2d.font = `600 ${height}px system-ui, sans-serif`;
    draw2d.textBaseline = "bottom";
    for (const block of plan.blocks) {
      if (block.x > seen.right || block.y > seen.bottom || block.x + block.width < seen.left || block.y + block.height < seen.top) continue;
      draw2d.strokeRect(block.x, block.y, block.width, block.height);
      draw2d.fillText(clipped(block.name, block.width, height), block.x + 2, block.y - 4);
    }
  }

  function drawEdges(seen, focus) {
    const plain = new Path2D();
    const news = new Path2D();
    const picked = new Path2D();
    const straight = zoom < 0.45;
    for (const edge of plan.edges) {
      const [from, to] = [edge.from, edge.to];
      const [top, bottom] = from.y < to.y ? [from.y, to.y] : [to.y, from.y];
      if (bottom < seen.top || top > seen.bottom) continue;
      const [left, right] = from.right < to.x ? [from.right, to.x] : [to.x, from.right];
      if (right < seen.left || left > seen.right) continue;
      const path = focus && (from === focus || to === focus) ? picked : edge.changed ? news : from.dim || to.dim ? null : plain;
      if (!path) continue;
      path.moveTo(from.right, from.y);
      if (straight) path.lineTo(to.x, to.y);
      else {
        const middle = (from.right + to.x) / 2;
        path.bezierCurveTo(middle, from.y, middle, to.y, to.x, to.y);
      }
    }
    draw2d.lineWidth = Math.max(1, 0.6 / zoom);
    draw2d.strokeStyle = ink.edge;
    draw2d.stroke(plain);
    draw2d.lineWidth = Math.max(1.4, 1 / zoom);
    draw2d.strokeStyle = ink.waiting;
    draw2d.stroke(news);
    draw2d.strokeStyle = ink.accent;
    draw2d.stroke(picked);
  }

  // far away: one filled path per colour
  function drawDots(seen, focus) {
    const paths = new Map();
    for (const node of plan.nodes) {
      if (!visible(node, seen)) continue;
      const name = `${node.source ? (node.missing ? "bad" : "off") : STATES[node.standing][0]}${node.dim ? " dim" : ""}`;
      let path = paths.get(name);
      if (!path) paths.set(name, (path = new Path2D()));
      path.rect(node.x, node.y - ROW * 0.34, node.width, ROW * 0.68);
    }
    for (const [name, path] of paths) {
      const [tone, dim] = name.split(" ");
      draw2d.globalAlpha = dim ? 0.15 : tone === "off" ? 0.45 : 0.9;
      draw2d.fillStyle = ink[tone];
      draw2d.fill(path);
    }
    draw2d.globalAlpha = 1;
    if (focus) outline(focus);
  }

  function drawNodes(seen, focus) {
    draw2d.font = "13px system-ui, sans-serif";
    draw2d.textBaseline = "middle";
    for (const node of plan.nodes) {
      if (!visible(node, seen)) continue;
      const tone = node.source ? (node.missing ? "bad" : node.changed ? "waiting" : "off") : STATES[node.standing][0];
      draw2d.globalAlpha = node.dim ? 0.2 : 1;
      draw2d.fillStyle = ink.card;
      draw2d.strokeStyle = ink.line;
      draw2d.lineWidth = 1;
      draw2d.beginPath();
      draw2d.roundRect(node.x, node.y - ROW * 0.42, node.width, ROW * 0.84, 6);
      draw2d.fill();
      draw2d.stroke();
      draw2d.fillStyle = ink[tone];
      draw2d.beginPath();
      if (node.source && node.kind === "secret") diamond(node.x + 13, node.y, 5);
      else if (node.source) draw2d.rect(node.x + 9, node.y - 4, 8, 8);
      else draw2d.arc(node.x + 13, node.y, 5, 0, 7);
      draw2d.fill();
      draw2d.fillStyle = node.source ? ink.quiet : ink.ink;
      draw2d.fillText(clipped(node.name, node.width - 30, 13), node.x + 25, node.y + 0.5);
    }
    draw2d.globalAlpha = 1;
    if (focus) outline(focus);
  }

  function outline(node) {
    draw2d.strokeStyle = ink.accent;
    draw2d.lineWidth = 2 / Math.min(1, zoom);
    draw2d.beginPath();
    draw2d.roundRect(node.x, node.y - ROW * 0.42, node.width, ROW * 0.84, 6);
    draw2d.stroke();
  }

  function diamond(cx, cy, r) {
    draw2d.moveTo(cx, cy - r);
    draw2d.lineTo(cx + r, cy);
    draw2d.lineTo(cx, cy + r);
    draw2d.lineTo(cx - r, cy);
    draw2d.closePath();
  }

  // -- hands ------------------------------------------------------------------------------------------------------------

  function zoomBy(factor, cx = box.clientWidth / 2, cy = box.clientHeight / 2) {
    const next = Math.min(3, Math.max(0.02, zoom * factor));
    x = cx - ((cx - x) * next) / zoom;
    y = cy - ((cy - y) * next) / zoom;
    zoom = next;
    moved = true;
    redraw();
  }

  function at(event) {
    const frame = canvas.getBoundingClientRect();
    const [px, py] = [(event.clientX - frame.left - x) / zoom, (event.clientY - frame.top - y) / zoom];
    return plan.at(px, py);
  }

  const pointers = new Map();
  let travelled = 0;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event);
    travelled = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) {
      const found = at(event);
      if (found !== over) {
        over = found;
        canvas.style.cursor = found ? "pointer" : "";
        redraw();
      }
      return;
    }
    if (pointers.size === 2) {
      const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
      const apart = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
      const frame = canvas.getBoundingClientRect();
      zoomBy(apart(event) / Math.max(1, apart(before)), other.clientX - frame.left, other.clientY - frame.top);
    } else {
      x += event.clientX - before.clientX;
      y += event.clientY - before.clientY;
      travelled += Math.abs(event.clientX - before.clientX) + Math.abs(event.clientY - before.clientY);
      moved = moved || travelled > 4;
      canvas.classList.toggle("dragging", travelled > 4);
      redraw();
    }
    pointers.set(event.pointerId, event);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, (event) => {
      if (name === "pointerup" && pointers.size === 1 && travelled <= 4) choose(at(event));
      pointers.delete(event.pointerId);
      canvas.classList.remove("dragging");
    });
  }
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && document.activeElement !== canvas) return; // the page scrolls, unless the map has the focus
    event.preventDefault();
    const frame = canvas.getBoundingClientRect();
    zoomBy(Math.exp(-event.deltaY / 400), event.clientX - frame.left, event.clientY - frame.top);
  }, { passive: false });

  const keys = {
    ArrowDown: () => choose(plan.beside(chosen, 1)),
    ArrowUp: () => choose(plan.beside(chosen, -1)),
    ArrowRight: () => choose(chosen?.source ? chosen.others[0] ?? chosen : chosen ?? plan.nodes[0]),
    ArrowLeft: () => choose(chosen && !chosen.source ? chosen.others[0] ?? chosen : chosen ?? plan.nodes[0]),
    Enter: () => chosen && !chosen.source && location.assign(workloadAddress(chosen)),
    Escape: () => choose(null),
    "+": () => zoomBy(1.3),
    "-": () => zoomBy(1 / 1.3),
    0: fit,
  };
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in keys) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });

  function choose(node) {
    chosen = node;
    if (node) {
      const [px, py] = [x + (node.x + node.width / 2) * zoom, y + node.y * zoom];
      if (px < 40 || px > box.clientWidth - 40) x += box.clientWidth / 2 - px;
      if (py < 40 || py > box.clientHeight - 40) y += box.clientHeight / 2 - py;
    }
    show();
    redraw();
  }

  function show() {
    about.show(chosen, choose);
  }

  // -- life -----------------------------------------------------------------------------------------------------------

  new ResizeObserver(size).observe(box);
  phone.addEventListener("change", () => {
    plan = arrange(answer, box.clientWidth / Math.max(1, box.clientHeight), phone.matches);
    grow();
    filter();
    fit();
  });
  document.addEventListener("steersman:theme", () => ((ink = colours()), redraw()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => ((ink = colours()), redraw()));
  document.addEventListener("steersman:filter", () => (filter(), redraw()));
  let waiting = 0;
  document.addEventListener("steersman:change", () => {
    clearTimeout(waiting);
    waiting = setTimeout(load, 200);
  });
  load();
}

function visible(node, seen) {
  return node.x < seen.right && node.right > seen.left && node.y - ROW < seen.bottom && node.y + ROW > seen.top;
}

// as many characters as fit, reckoned and not measured: measuring thousands of labels costs more than drawing them
function clipped(text, width, height) {
  const fits = Math.floor(width / (height * 0.6));
  return text.length <= fits ? text : `${text.slice(0, Math.max(1, fits - 1))}…`;
}

// canvases know no CSS variables: a probe tells what each is here and now
function colours() {
  const probe = document.createElement("span");
  document.body.append(probe);
  const found = {};
  for (const name of ["good", "busy", "waiting", "bad", "off", "unknown", "ink", "quiet", "line", "edge", "card", "accent"]) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

function buttons(actions) {
  const box = document.createElement("div");
  box.className = "buttons";
  for (const [name, text, label] of [["in", "+", "Zoom in"], ["out", "−", "Zoom out"], ["fit", "Fit", "Show everything"]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.setAttribute("aria-label", label);
    if (name === "fit") button.className = "wide";
    button.addEventListener("click", actions[name]);
    box.append(button);
  }
  return box;
}

function signs() {
  const box = document.createElement("div");
  box.className = "key-signs";
  for (const [tone, word] of Object.values(STATES)) {
    const one = document.createElement("span");
    one.className = `state ${tone}`;
    one.textContent = `● ${word}`;
    box.append(one);
  }
  return box;
}

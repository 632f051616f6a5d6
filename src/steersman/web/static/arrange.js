// Where everything is on the map: a block per namespace, in it sources left and workloads right, blocks side by side.
// The same cluster gives the same picture.

export const ROW = 26;
const WIDE = { source: 210, gap: 150, workload: 230, margin: 60 };
const NARROW = { source: 138, gap: 36, workload: 150, margin: 36 }; // one block is as wide as a phone

// `narrow`: one block below the other, for a screen that is scrolled
export function arrange(map, aspect, narrow = false) {
  const byId = new Map();
  const spaces = new Map();
  const space = (name) => {
    if (!spaces.has(name)) spaces.set(name, { name, sources: [], workloads: [] });
    return spaces.get(name);
  };
  for (const one of map.sources) {
    const node = { ...one, source: true, others: [], rank: 0 };
    byId.set(one.id, node);
    space(one.namespace).sources.push(node);
  }
  for (const one of map.workloads) {
    const node = { ...one, source: false, others: [], rank: 0 };
    byId.set(one.id, node);
    space(one.namespace).workloads.push(node);
  }
  const edges = [];
  for (const { source, workload, changed } of map.edges) {
    const [from, to] = [byId.get(source), byId.get(workload)];
    if (!from || !to) continue;
    from.others.push(to);
    to.others.push(from);
    edges.push({ from, to, changed });
  }
  const blocks = [...spaces.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  for (const block of blocks) rank(block);
  const { width, height } = place(blocks, aspect, narrow ? NARROW : WIDE);
  const nodes = blocks.flatMap((block) => [...block.sources, ...block.workloads]);
  return { nodes, edges, blocks, byId, width, height, at: (x, y) => find(blocks, x, y), beside: (node, step) => beside(nodes, node, step) };
}

// workloads next to what they use, so that few lines cross
function rank(block) {
  block.sources.sort((a, b) => b.others.length - a.others.length || (a.id < b.id ? -1 : 1));
  block.sources.forEach((one, place) => (one.rank = place));
  for (const one of block.workloads) {
    one.rank = one.others.reduce((sum, other) => sum + other.rank, 0) / Math.max(1, one.others.length);
  }
  block.workloads.sort((a, b) => a.rank - b.rank || (a.id < b.id ? -1 : 1));
  const spread = block.workloads.length / Math.max(1, block.sources.length);
  for (const one of block.sources) {
    const mine = one.others.filter((other) => other.namespace === block.name);
    const places = mine.map((other) => block.workloads.indexOf(other)).filter((at) => at >= 0);
    one.rank = places.length ? places.reduce((sum, at) => sum + at, 0) / places.length : one.rank * spread;
  }
  block.sources.sort((a, b) => a.rank - b.rank || (a.id < b.id ? -1 : 1));
}

function place(blocks, aspect, { source, gap, workload, margin }) {
  const wide = source + gap + workload + 24;
  const heights = blocks.map((block) => Math.max(block.sources.length, block.workloads.length, 1) * ROW + 24);
  const area = heights.reduce((sum, high) => sum + (high + margin) * (wide + margin), 0);
  const columns = Math.max(1, Math.min(blocks.length, margin === NARROW.margin ? 1 : Math.round(Math.sqrt(area * aspect) / (wide + margin))));
  const bottoms = new Array(columns).fill(margin / 2);
  blocks.forEach((block, place) => {
    const column = bottoms.indexOf(Math.min(...bottoms));
    block.x = column * (wide + margin);
    block.y = bottoms[column];
    block.width = wide;
    block.height = heights[place];
    bottoms[column] += block.height + margin;
    stand(block.sources, block, block.x + 12, source);
    stand(block.workloads, block, block.x + 12 + source + gap, workload);
  });
  return { width: columns * (wide + margin) - margin, height: Math.max(...bottoms) - margin };
}

function stand(nodes, block, x, width) {
  const step = (block.height - 24) / Math.max(1, nodes.length);
  nodes.forEach((node, at) => {
    node.x = x;
    node.width = width;
    node.right = x + width;
    node.y = block.y + 12 + step * (at + 0.5);
  });
}

function find(blocks, x, y) {
  const block = blocks.find((one) => x >= one.x && x <= one.x + one.width && y >= one.y && y <= one.y + one.height);
  if (!block) return null;
  const hit = (node) => x >= node.x && x <= node.right && Math.abs(y - node.y) <= ROW / 2;
  return block.sources.find(hit) ?? block.workloads.find(hit) ?? null;
}

function beside(nodes, node, step) {
  if (!nodes.length) return null;
  const at = node ? nodes.indexOf(node) + step : step > 0 ? 0 : nodes.length - 1;
  return nodes[Math.max(0, Math.min(nodes.length - 1, at))];
}

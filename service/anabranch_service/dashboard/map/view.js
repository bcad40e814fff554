// Geometry of the joint plan's map: positions, line widths, classes of load. Pure functions.

export const LINE = 17;
export const PADDING = 11;
const ROW_GAP = 12;
/** Between layers, in wide and in narrow pictures. */
const [LAYER_GAP, NARROW_GAP] = [90, 44];
const MARGIN = 14;
/** Characters after which a name is wrapped. */
const WRAP = 26;
/** Least shares of all CPU time of a warm and of a hot link. */
const WARM = 0.05;
const HOT = 0.25;

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** Format a rate. */
export function rate(tuples) {
  if (tuples > 0 && tuples < 0.1) return "< 0.1/s";
  return `${tuples < 10 ? Number(tuples.toFixed(1)) : compact.format(tuples)}/s`;
}

/** Format CPU seconds per second. */
export function load(cpu) {
  return cpu >= 1 ? `${cpu.toFixed(1)} CPU cores` : `${Number((100 * cpu).toPrecision(2))} % of a CPU core`;
}

/** Wrap a text into lines of about `most` characters, at word ends or within long words. */
export function lines(text, most = WRAP) {
  const found = [];
  let line = "";
  for (const word of text.split(/(?<=[\s._-])/)) {
    if (line && (line + word).trimEnd().length > most) {
      found.push(line.trim());
      line = "";
    }
    line += word;
    while (line.trimEnd().length > most) {
      found.push(line.slice(0, most));
      line = line.slice(most);
    }
  }
  return [...found, line.trim()].filter(Boolean);
}

/** Links and nodes on the paths to a node; with `onward` also on the paths from it. */
export function around(plan, id) {
  const nodes = new Set([id]);
  const walk = (from, to) => {
    const pending = [id];
    while (pending.length) {
      const here = pending.pop();
      for (const link of plan.links) {
        if (link[from] === here && !nodes.has(link[to])) {
          nodes.add(link[to]);
          pending.push(link[to]);
        }
      }
    }
  };
  walk("target", "source");
  if (!id.startsWith("query:") && !id.startsWith("group:")) walk("source", "target");
  return nodes;
}

/** The link with the most CPU time, and its share; null: no CPU time was measured. */
export function dearest(plan) {
  const most = plan.links.reduce((best, link) => (link.cpu > (best?.cpu ?? 0) ? link : best), null);
  return most && { ...most, share: plan.cpu ? Math.min(most.cpu / plan.cpu, 1) : 0 };
}

/** Height of a link that passes a layer, and height of rows in a plan with groups, as a share of others. */
const [BEND, CLOSE] = [10, 0.4];

/**
 * Place boxes and bends of links in each layer, in their order: at their places in rows of mean height, or
 * lower, below a high box. Returns "layer place" -> y of the middle.
 */
function rows(boxes, links) {
  const slots = new Map(links.flatMap(({ bends }) => bends.map(([layer, at]) => [`${layer} ${at}`, { layer, at, height: BEND }])));
  for (const { layer, at, height } of boxes) slots.set(`${layer} ${at}`, { layer, at, height });
  // Many links pass the layers of a plan with groups: its rows are as close as boxes allow.
  const close = boxes.some(({ kind }) => kind === "group");
  const row = (boxes.reduce((sum, { height }) => sum + height, 0) / boxes.length + ROW_GAP) * (close ? CLOSE : 1);
  const all = [...slots].sort(([, one], [, other]) => one.at - other.at);
  const first = Math.min(0, ...all.map(([, { at }]) => at));
  const ends = new Map();
  return new Map(
    all.map(([key, { layer, at, height }]) => {
      const middle = Math.max(MARGIN + (at - first) * row + height / 2, (ends.get(layer) ?? 0) + height / 2);
      ends.set(layer, middle + height / 2 + (close && height === BEND ? 0 : ROW_GAP));
      return [key, middle];
    }),
  );
}

/**
 * Layout of nodes as boxes and links as paths. `measure`: text -> width in pixels. `narrow`: whether the picture is.
 */
export function placed(plan, measure, narrow = false) {
  const gap = narrow ? NARROW_GAP : LAYER_GAP;
  const boxes = new Map(
    plan.nodes.map((node) => {
      const title = lines(node.label);
      const rest = { relation: lines(node.detail, 34), result: lines(node.detail, 34), group: lines(node.detail, 30) }[node.kind] ?? [];
      const figure = plan.measured ? [rate(node.tuples_per_second)] : [];
      const small = [...rest, ...figure];
      const width = 2 * PADDING + Math.max(...title.map((t) => measure(t, true)), ...small.map((t) => measure(t, false)));
      return [node.id, { ...node, title, small, width, height: 2 * PADDING + LINE * (title.length + small.length) - 4 }];
    }),
  );
  const all = [...boxes.values()];
  const layers = 1 + Math.max(0, ...all.map((box) => box.layer));
  const widths = Array.from({ length: layers }, (_, layer) => Math.max(0, ...all.filter((b) => b.layer === layer).map((b) => b.width)));
  const lefts = widths.reduce((found, width) => [...found, found.at(-1) + width + gap], [MARGIN]);
  const middles = rows(all, plan.links);
  const middle = (layer, at) => middles.get(`${layer} ${at}`);
  for (const box of all) {
    box.left = lefts[box.layer];
    box.middle = middle(box.layer, box.at);
  }
  const most = Math.max(0, ...plan.links.map((link) => link.tuples_per_second));
  const links = plan.links.map((link) => {
    const from = boxes.get(link.source);
    const to = boxes.get(link.target);
    const points = [[from.left + from.width, from.middle]];
    for (const [layer, at] of link.bends) {
      points.push([lefts[layer], middle(layer, at)], [lefts[layer] + widths[layer], middle(layer, at)]);
    }
    points.push([to.left, to.middle]);
    const share = plan.cpu ? link.cpu / plan.cpu : 0;
    return {
      ...link,
      share,
      load: share >= HOT ? "hot" : share >= WARM ? "warm" : "cool",
      width: 1.2 + (most ? 7 * Math.sqrt(link.tuples_per_second / most) : 0),
      path: curve(points),
    };
  });
  const bottom = Math.max(0, ...middles.values(), ...all.map((box) => box.middle + box.height / 2));
  return { boxes: all, links, width: lefts[layers] - gap + MARGIN, height: bottom + MARGIN };
}

function curve([first, ...rest]) {
  let [x, y] = first;
  let path = `M${x} ${y}`;
  for (const [nextX, nextY] of rest) {
    const bend = (x + nextX) / 2;
    path += ` C${bend} ${y} ${bend} ${nextY} ${nextX} ${nextY}`;
    [x, y] = [nextX, nextY];
  }
  return path;
}

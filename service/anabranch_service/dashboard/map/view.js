// Geometry of the joint plan's map: positions, line widths, classes of load. Pure functions.

export const LINE = 17;
export const PADDING = 11;
const ROW_GAP = 12;
const LAYER_GAP = 90;
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

/**
 * Layout of nodes as boxes and links as paths. `measure`: text -> width in pixels.
 */
export function placed(plan, measure) {
  const boxes = new Map(
    plan.nodes.map((node) => {
      const title = lines(node.label);
      const rest = node.kind === "relation" || node.kind === "result" ? lines(node.detail, 34) : [];
      const figure = plan.measured ? [rate(node.tuples_per_second)] : [];
      const small = [...rest, ...figure];
      const width = 2 * PADDING + Math.max(...title.map((t) => measure(t, true)), ...small.map((t) => measure(t, false)));
      return [node.id, { ...node, title, small, width, height: 2 * PADDING + LINE * (title.length + small.length) - 4 }];
    }),
  );
  const all = [...boxes.values()];
  const row = Math.max(0, ...all.map((box) => box.height)) + ROW_GAP;
  const layers = 1 + Math.max(0, ...all.map((box) => box.layer));
  const widths = Array.from({ length: layers }, (_, layer) => Math.max(0, ...all.filter((b) => b.layer === layer).map((b) => b.width)));
  const lefts = widths.reduce((found, width) => [...found, found.at(-1) + width + LAYER_GAP], [MARGIN]);
  const places = [...all.map((b) => b.at), ...plan.links.flatMap((link) => link.bends.map(([, at]) => at))];
  const first = Math.min(0, ...places);
  const middle = (at) => MARGIN + (at - first + 0.5) * row - ROW_GAP / 2;
  for (const box of all) {
    box.left = lefts[box.layer];
    box.middle = middle(box.at);
  }
  const most = Math.max(0, ...plan.links.map((link) => link.tuples_per_second));
  const links = plan.links.map((link) => {
    const from = boxes.get(link.source);
    const to = boxes.get(link.target);
    const points = [[from.left + from.width, from.middle]];
    for (const [layer, at] of link.bends) {
      points.push([lefts[layer], middle(at)], [lefts[layer] + widths[layer], middle(at)]);
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
  const rows = Math.max(0, ...places) - first + 1;
  return { boxes: all, links, width: lefts[layers] - LAYER_GAP + MARGIN, height: rows * row - ROW_GAP + 2 * MARGIN };
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

"use strict";

const ROW = 20; // pixels
const LEAST = 1 / 1500; // of the width; narrower frames are not drawn
const PACKAGES = 5;

const data = JSON.parse(document.getElementById("data").textContent);
const [graph, detail, search, matched, legend, tabs] = ["graph", "detail", "search", "matched", "legend", "tabs"].map(
  (id) => document.getElementById(id),
);
const variants = data.variants;

const nodes = data.nodes.map(([frame, , own, ownAgainst, whole, wholeAgainst, width, differs]) => ({
  own: [own, ownAgainst], whole: [whole, wholeAgainst], width, differs, children: [], depth: 0,
  module: data.frames[frame][0], name: data.frames[frame][1],
}));
nodes.slice(1).forEach((node, place) => {
  node.parent = nodes[data.nodes[place + 1][1]];
  node.depth = node.parent.depth + 1;
  node.parent.children.push(node);
});
const root = nodes[0];

// A view is a flame graph of one variant, by its place, or "difference".
let view = variants.length > 1 ? "difference" : 0;
let zoomed = root;

const widthOf = (node) => (view === "difference" ? node.width : node.whole[view]);

function seconds(value) {
  const size = Math.abs(value);
  const [unit, factor] = size === 0 || size >= 1 ? ["s", 1] : size >= 1e-3 ? ["ms", 1e3] : size >= 1e-6 ? ["µs", 1e6] : ["ns", 1e9];
  return `${Number((value * factor).toPrecision(3)).toLocaleString("en")} ${unit}`;
}

function percent(part, whole) {
  const share = whole > 0 ? (100 * part) / whole : 0;
  return share > 0 && share < 1 ? "< 1 %" : `${share.toFixed(0)} %`;
}

// The packages that take most of the time by themselves get a colour each.
const packageOf = (node) => (node.module.startsWith("<") ? "" : node.module.split(".")[0]);
const totals = {};
for (const node of nodes) totals[packageOf(node)] = (totals[packageOf(node)] || 0) + node.own[0] + node.own[1];
delete totals[""];
const packages = Object.keys(totals).sort((a, b) => totals[b] - totals[a]).slice(0, PACKAGES);

// The more a frame differs, the stronger its colour.
const mixed = (kind, share) => `color-mix(in srgb, var(--${kind}) ${100 * share}%, var(--same))`;
function colour(node) {
  const place = packages.indexOf(packageOf(node));
  if (view !== "difference") return place < 0 ? "var(--same)" : `var(--package-${place})`;
  const [mine, theirs] = node.whole;
  if (!node.differs) return "var(--same)";
  return mixed(mine > theirs ? "more" : "less", Math.abs(mine - theirs) / Math.max(mine, theirs));
}

function description(node) {
  const lines = variants.map((variant, place) => {
    const share = percent(node.whole[place], root.whole[place]);
    return `${variant}: ${seconds(node.whole[place])} per call, ${share}; itself ${seconds(node.own[place])}`;
  });
  if (variants.length > 1) {
    const difference = node.whole[0] - node.whole[1];
    const more = `${seconds(Math.abs(difference))} ${difference < 0 ? "less" : "more"} in ${variants[0]}`;
    lines.push(node.differs ? more : `No difference beyond the noise (${more})`);
  }
  return [node.name, ...lines].join("\n");
}

// Places the callers of the zoomed frame over the full width, and what it calls in proportion.
function draw() {
  const frames = [];
  const add = (node, left, share) => {
    const frame = document.createElement("button");
    frame.type = "button";
    frame.node = node;
    frame.title = description(node);
    // Where there is no room for the module too, the function's name alone says more.
    frame.textContent = share > 0.15 ? node.name : node.name.replace(`${node.module}.`, "");
    frame.style.cssText = `left:${100 * left}%;width:${100 * share}%;top:${node.depth * ROW}px;background:${colour(node)}`;
    frame.addEventListener("click", () => zoom(node));
    frames.push(frame);
    return frame;
  };
  for (let caller = zoomed.parent; caller; caller = caller.parent) add(caller, 0, 1).classList.add("caller");
  const scale = widthOf(zoomed) || 1;
  const pending = [[zoomed, 0]];
  while (pending.length) {
    const [node, left] = pending.pop();
    const share = node === zoomed ? 1 : widthOf(node) / scale;
    if (share < LEAST) continue;
    add(node, left, share);
    let next = left;
    for (const child of node.children) {
      pending.push([child, next]);
      next += widthOf(child) / scale;
    }
  }
  graph.replaceChildren(...frames);
  graph.style.height = `${ROW * (1 + Math.max(...frames.map((frame) => frame.node.depth)))}px`;
  detail.textContent = description(zoomed);
  mark();
}

function zoom(node) {
  zoomed = node;
  draw();
  [...graph.children].find((frame) => frame.node === node).focus({ preventScroll: true });
}

// Marks the frames with the text in their names; what they call must not count twice.
function mark() {
  const text = search.value.trim().toLowerCase();
  const matches = (node) => text !== "" && node.name.toLowerCase().includes(text);
  graph.classList.toggle("searching", text !== "");
  for (const frame of graph.children) frame.classList.toggle("hit", matches(frame.node));
  const sums = [0, 0];
  const within = new Set();
  for (const node of nodes) {
    const inside = within.has(node.parent);
    if (inside || matches(node)) within.add(node);
    if (!inside && matches(node)) node.whole.forEach((value, place) => (sums[place] += value));
  }
  const shares = variants.map((name, place) => `${percent(sums[place], root.whole[place])} of ${name}`);
  matched.textContent = text && `In ${shares.join(" and ")}`;
}

function choose(chosen) {
  view = chosen;
  if (!(widthOf(zoomed) > 0)) zoomed = root;
  for (const tab of tabs.children) tab.setAttribute("aria-pressed", tab.view === view);
  const entries =
    view === "difference"
      ? [[mixed("more", 1), `${variants[0]} takes more`], ["var(--same)", "no difference beyond the noise"], [mixed("less", 1), `${variants[1]} takes more`]]
      : [...packages.map((name, place) => [`var(--package-${place})`, name]), ["var(--same)", "other"]];
  legend.replaceChildren(
    ...entries.map(([background, text]) => {
      const entry = document.createElement("span");
      Object.assign(entry, { textContent: text }).style.background = background;
      return entry;
    }),
  );
  draw();
}

for (const each of variants.length > 1 ? ["difference", 0, 1] : []) {
  const tab = document.createElement("button");
  Object.assign(tab, { type: "button", view: each, textContent: each === "difference" ? "Difference" : variants[each] });
  tab.addEventListener("click", () => choose(each));
  tabs.append(tab);
}
search.addEventListener("input", mark);
graph.addEventListener("keydown", (event) => event.key === "Escape" && zoom(root));
choose(view);

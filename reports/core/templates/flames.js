"use strict";

const ROW = 20;
const LEAST_PIXELS = 1;
const PACKAGES = 5;
const PIXELS_OF_LETTER = 6.5;

const data = JSON.parse(document.getElementById("data").textContent);
const [graph, tip, search, reset, found, legend, tabs] = ["graph", "tip", "search", "reset", "found", "legend", "tabs"].map(
  (id) => document.getElementById(id),
);

const nodes = data.nodes.map(([frame, parent, own, ownAgainst, whole, wholeAgainst, width, differs], id) => ({
  id, parent, own: [own, ownAgainst], whole: [whole, wholeAgainst], width, differs: Boolean(differs), children: [],
  module: data.frames[frame][0], name: data.frames[frame][1],
}));
const root = nodes[0];
for (const node of nodes.slice(1)) {
  node.parent = nodes[node.parent];
  node.depth = node.parent.depth + 1 || 1;
  node.parent.children.push(node);
}
root.parent = null;
root.depth = 0;

// A view is a flame graph of one variant, by its place, or "difference".
const views = data.variants.length > 1 ? ["difference", 0, 1] : [0];
let view = views[0];
let zoomed = root;
let current = root;
let elements = new Map();

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
const packages = (() => {
  const totals = new Map();
  for (const node of nodes.slice(1)) {
    const name = packageOf(node);
    totals.set(name, (totals.get(name) || 0) + node.own[0] + node.own[1]);
  }
  totals.delete("");
  return [...totals.keys()].sort((a, b) => totals.get(b) - totals.get(a)).slice(0, PACKAGES);
})();

function colour(node) {
  if (view !== "difference") {
    const place = packages.indexOf(packageOf(node));
    return place < 0 ? "same" : `package-${place}`;
  }
  if (!node.differs) return "same";
  const [mine, theirs] = node.whole;
  const step = Math.min(4, Math.ceil((4 * Math.abs(mine - theirs)) / Math.max(mine, theirs)));
  return `${mine > theirs ? "more" : "less"}-${step}`;
}

function description(node) {
  const lines = [node.name];
  data.variants.forEach((variant, place) => {
    const share = percent(node.whole[place], root.whole[place]);
    lines.push(`${variant}: ${seconds(node.whole[place])} per call, ${share}; itself ${seconds(node.own[place])}`);
  });
  if (data.variants.length > 1) {
    const difference = node.whole[0] - node.whole[1];
    const more = `${seconds(Math.abs(difference))} ${difference < 0 ? "less" : "more"} in ${data.variants[0]}`;
    lines.push(node.differs ? more : `No difference beyond the noise (${more})`);
  }
  return lines.join("\n");
}

// Places every frame that is wide enough to be seen: callers of the zoomed one over the full width,
// and what it calls in proportion.
function draw() {
  const pixels = graph.clientWidth;
  if (pixels < LEAST_PIXELS) return; // no room to draw in; the next resize will draw
  const scale = 1 / (widthOf(zoomed) || 1);
  elements = new Map();
  const fragment = document.createDocumentFragment();
  let rows = 1;
  const place = (node, left, share) => {
    if (share * pixels < LEAST_PIXELS) return;
    fragment.append(element(node, left, share, share * pixels));
    rows = Math.max(rows, node.depth + 1);
    let next = left;
    for (const child of node.children) {
      const childShare = widthOf(child) * scale;
      pending.push([child, next, childShare]);
      next += childShare;
    }
  };
  for (let caller = zoomed.parent; caller; caller = caller.parent) {
    const frame = element(caller, 0, 1, pixels);
    frame.classList.add("caller");
    fragment.append(frame);
  }
  const pending = [[zoomed, 0, 1]];
  while (pending.length) place(...pending.pop());
  graph.replaceChildren(fragment);
  graph.style.height = `${rows * ROW}px`;
  reset.disabled = zoomed === root;
  if (!elements.has(current)) current = zoomed;
  elements.get(current).tabIndex = 0;
  markFound();
}

function element(node, left, share, pixels) {
  const frame = document.createElement("div");
  frame.className = `frame ${colour(node)}`;
  frame.setAttribute("role", "treeitem");
  frame.setAttribute("aria-level", node.depth + 1);
  frame.setAttribute("aria-label", description(node));
  frame.tabIndex = -1;
  frame.style.cssText = `left:${100 * left}%;width:${100 * share}%;top:${node.depth * ROW}px`;
  if (pixels > 24) frame.textContent = labelOf(node, pixels);
  else frame.classList.add("thin");
  frame.node = node;
  elements.set(node, frame);
  return frame;
}

// Where there is no room for the module too, the function's name alone says more.
function labelOf(node, pixels) {
  const module = `${node.module}.`;
  const fits = node.name.length * PIXELS_OF_LETTER < pixels;
  return fits || !node.name.startsWith(module) ? node.name : node.name.slice(module.length);
}

function zoom(node) {
  zoomed = node;
  current = node;
  draw();
}

function focus(node) {
  if (!node || !elements.has(node)) return;
  elements.get(current).tabIndex = -1;
  current = node;
  elements.get(node).tabIndex = 0;
  elements.get(node).focus();
}

function sibling(node, step) {
  const shown = node.parent ? node.parent.children.filter((each) => elements.has(each)) : [node];
  return shown[shown.indexOf(node) + step];
}

function widestChild(node) {
  const shown = node.children.filter((each) => elements.has(each));
  return shown.reduce((a, b) => (a && widthOf(a) >= widthOf(b) ? a : b), undefined);
}

function show(node, x, y) {
  tip.textContent = description(node);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const below = y + 16 + box.height < innerHeight ? y + 16 : Math.max(4, y - box.height - 24);
  tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - box.width - 8))}px`;
  tip.style.top = `${below}px`;
}

function hide() {
  tip.hidden = true;
}

// What is found below a frame that is found must not count twice.
function markFound() {
  const text = search.value.trim().toLowerCase();
  graph.classList.toggle("searching", text !== "");
  const matches = (node) => text !== "" && node.name.toLowerCase().includes(text);
  for (const [node, frame] of elements) frame.classList.toggle("hit", matches(node));
  if (!text) {
    found.textContent = "";
    return;
  }
  const totals = [0, 0];
  const within = new Set();
  for (const node of nodes) {
    const inside = within.has(node.parent);
    if (inside || matches(node)) within.add(node);
    if (!inside && matches(node)) node.whole.forEach((value, place) => (totals[place] += value));
  }
  const shares = data.variants.map((name, place) => `${percent(totals[place], root.whole[place])} of ${name}`);
  found.textContent = `Found in ${shares.join(" and ")}`;
}

function drawLegend() {
  const entries = [];
  if (view === "difference") {
    const [mine, theirs] = data.variants;
    entries.push(
      ["more-4", `${mine} takes over 4 times as much`],
      ["more-2", `${mine} takes more`],
      ["same", "no difference beyond the noise"],
      ["less-2", `${theirs} takes more`],
      ["less-4", `${theirs} takes over 4 times as much`],
    );
  } else {
    packages.forEach((name, place) => entries.push([`package-${place}`, name]));
    entries.push(["same", "other"]);
  }
  legend.replaceChildren(
    ...entries.map(([kind, text]) => {
      const entry = document.createElement("span");
      entry.className = kind;
      entry.textContent = text;
      return entry;
    }),
  );
}

function choose(chosen) {
  view = chosen;
  if (!(widthOf(zoomed) > 0)) zoomed = root;
  for (const tab of tabs.children) {
    tab.setAttribute("aria-selected", tab.view === view);
    tab.tabIndex = tab.view === view ? 0 : -1;
  }
  drawLegend();
  draw();
}

if (views.length > 1) {
  for (const each of views) {
    const tab = document.createElement("button");
    tab.type = "button";
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", "graph");
    tab.textContent = each === "difference" ? "Difference" : data.variants[each];
    tab.view = each;
    tab.addEventListener("click", () => choose(each));
    tabs.append(tab);
  }
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const next = tabs.children[views.indexOf(view) + step];
    if (!next) return;
    choose(next.view);
    next.focus();
  });
}

graph.addEventListener("click", (event) => {
  const frame = event.target.closest(".frame");
  if (frame) {
    zoom(frame.node);
    hide();
  }
});
graph.addEventListener("mousemove", (event) => {
  const frame = event.target.closest(".frame");
  if (frame) show(frame.node, event.clientX, event.clientY);
  else hide();
});
graph.addEventListener("mouseleave", hide);
graph.addEventListener("focusin", (event) => {
  const box = event.target.getBoundingClientRect();
  if (event.target.matches(":focus-visible")) show(event.target.node, box.left, box.bottom - 12);
});
graph.addEventListener("focusout", hide);
graph.addEventListener("keydown", (event) => {
  const node = event.target.node;
  if (!node) return;
  const moves = {
    ArrowUp: () => focus(node.parent),
    ArrowDown: () => focus(widestChild(node)),
    ArrowLeft: () => focus(sibling(node, -1)),
    ArrowRight: () => focus(sibling(node, 1)),
    Enter: () => { zoom(node); focus(node); },
    " ": () => { zoom(node); focus(node); },
    Escape: () => { zoom(root); focus(root); },
  };
  if (!(event.key in moves)) return;
  event.preventDefault();
  moves[event.key]();
});
search.addEventListener("input", markFound);
reset.addEventListener("click", () => zoom(root));
addEventListener("resize", draw);
addEventListener("scroll", hide, { passive: true });
choose(view);

"use strict";

const NOTHING = ["", "—"];

// A number column carries its value in data-sort; entries that say nothing stay last either way.
function compare(a, b, column, sign) {
  const [x, y] = [a.cells[column], b.cells[column]];
  if (!x.classList.contains("number")) {
    const [p, q] = [x.textContent, y.textContent];
    if (NOTHING.includes(p) || NOTHING.includes(q)) return NOTHING.includes(p) - NOTHING.includes(q);
    return sign * p.localeCompare(q, "en", { numeric: true });
  }
  const [p, q] = [x.dataset.sort, y.dataset.sort];
  if (p === undefined || q === undefined) return (p === undefined) - (q === undefined);
  return sign * (p - q);
}

function sortBy(heading) {
  const table = heading.closest("table");
  const descending = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => compare(a, b, heading.cellIndex, descending ? -1 : 1));
  table.tBodies[0].append(...rows);
}

function filterRows(box) {
  const words = box.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = [...document.getElementById(box.dataset.table).tBodies[0].rows];
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
  const shown = rows.filter((row) => !row.hidden).length;
  box.querySelector("output").textContent = `${shown} of ${rows.length} rows`;
}

document.documentElement.classList.add("scripted");
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => sortBy(button.closest("th")));
}
for (const box of document.querySelectorAll(".filter")) {
  box.hidden = false;
  box.querySelector("input").addEventListener("input", () => filterRows(box));
  filterRows(box);
}

// A link may lead into what is folded.
function openTarget() {
  let folded = document.getElementById(decodeURIComponent(location.hash.slice(1)))?.closest("details");
  if (!folded) return;
  for (let each = folded; each; each = each.parentElement.closest("details")) each.open = true;
  document.getElementById(decodeURIComponent(location.hash.slice(1))).scrollIntoView();
}
addEventListener("hashchange", openTarget);
openTarget();

// An entry of a legend hides and shows its line.
function toggleSeries(card, key) {
  const same = `[data-key="${key}"]`;
  const off = card.querySelector(same).classList.contains("off");
  for (const part of card.querySelectorAll(same)) {
    part.classList.toggle("off", !off);
    part.setAttribute("aria-pressed", off);
  }
  for (const part of card.querySelectorAll(`[data-series="${key}"]`)) part.classList.toggle("hidden", !off);
}
for (const part of document.querySelectorAll(".card [data-key]")) {
  const toggle = () => toggleSeries(part.closest(".card"), part.dataset.key);
  part.setAttribute("role", "button");
  part.setAttribute("aria-pressed", "true");
  part.addEventListener("click", toggle);
  if (part.querySelector("text")) {
    part.setAttribute("tabindex", "0");
    part.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle();
    });
  }
}

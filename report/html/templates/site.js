"use strict";
// Tabs, search, sorting; on the page of a board also the choice of metric, datasets and columns, and a comparison of methods.
// Without this script all tables are shown. The state is in the address: #tab=Scores&metric=macro_f1&data=cora|pubmed

const DATA = JSON.parse(document.getElementById("data").textContent);
const STATE = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

function remember(changes) {
  Object.assign(STATE, changes);
  const kept = Object.entries(STATE).filter(([, value]) => value);
  history.replaceState(null, "", "#" + new URLSearchParams(kept));
}

// make("td", {className: "number"}, "text", node): an element; its text is never markup.
function make(tag, properties, ...children) {
  const found = Object.assign(document.createElement(tag), properties);
  found.append(...children);
  return found;
}

function search() {
  const field = document.getElementById("find");
  const list = document.getElementById("pages");
  field.addEventListener("focus", () => list.children.length || list.append(...Object.keys(DATA.pages).map((value) => make("option", { value }))));
  field.addEventListener("change", () => {
    const typed = field.value.trim().toLowerCase();
    const name = typed && Object.keys(DATA.pages).find((own) => own.toLowerCase().startsWith(typed));
    if (name) location.href = DATA.pages[name];
  });
  field.parentElement.hidden = false;
}

// Show one section at a time. The left and right keys move between tabs.
function tabs() {
  const bar = document.querySelector(".tabs");
  const sections = [...document.querySelectorAll("[data-tab]")];
  if (!bar) return;
  bar.setAttribute("role", "tablist");
  const show = (name) => {
    for (const [i, section] of sections.entries()) {
      section.hidden = section.dataset.tab !== name;
      bar.children[i].setAttribute("aria-selected", String(!section.hidden));
      bar.children[i].tabIndex = section.hidden ? -1 : 0;
    }
  };
  sections.forEach((section, i) => {
    const button = make("button", { type: "button", id: `tab-${i}` }, section.dataset.tab);
    section.id ||= `part-${i}`;
    button.setAttribute("role", "tab");
    button.setAttribute("aria-controls", section.id);
    section.setAttribute("role", "tabpanel");
    section.setAttribute("aria-labelledby", button.id);
    button.addEventListener("click", () => (remember({ tab: i ? section.dataset.tab : "" }), show(section.dataset.tab)));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const next = step && bar.children[(i + step + sections.length) % sections.length];
      if (next) (next.focus(), next.click());
    });
    bar.append(button);
  });
  bar.hidden = false;
  show((sections.find((own) => own.dataset.tab === STATE.tab) || sections[0]).dataset.tab);
}

// Sort by the values of a column, or by its text. Cells without a value are last, and equal cells keep their order.
function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (head.classList.contains("text") || !head.textContent) return;
    const button = make("button", { type: "button" }, ...head.childNodes);
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const first = head.hasAttribute("data-falling") ? "descending" : "ascending";
      const turn = head.ariaSort === first ? (first === "ascending" ? "descending" : "ascending") : first;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.ariaSort = turn;
      const value = (row) => row.cells[column].dataset.value ?? (head.classList.contains("number") ? "" : row.cells[column].textContent);
      const sign = turn === "descending" ? -1 : 1;
      table.tBodies[0].append(
        ...[...table.tBodies[0].rows].sort((a, b) => {
          const [x, y] = [value(a), value(b)];
          if (!x || !y) return !x - !y;
          return sign * (isNaN(x - y) ? x.localeCompare(y, "en", { numeric: true }) : x - y);
        })
      );
    });
  });
}

// Buttons that save a table, as shown, as CSV or copy it as LaTeX.
function savable(box) {
  const lines = () => [...box.querySelectorAll("tr")].map((row) => [...row.cells].map((cell) => cell.innerText.trim().replace(/\s+/g, " ")));
  const csv = make("button", { type: "button" }, "CSV");
  const latex = make("button", { type: "button" }, "Copy LaTeX");
  csv.addEventListener("click", () => {
    const quoted = lines().map((line) => line.map((text) => `"${(/^[=+@-]/.test(text) && isNaN(text) ? "'" : "") + text.replaceAll('"', '""')}"`).join(","));
    make("a", { download: "table.csv", href: "data:text/csv;charset=utf-8," + encodeURIComponent(quoted.join("\n")) }).click();
  });
  latex.addEventListener("click", () => {
    const rows = lines().map((line) => line.map((text) => text.replace(/\\/g, "\\textbackslash ").replace(/[&%$#_{}]/g, "\\$&")).join(" & ") + " \\\\");
    navigator.clipboard?.writeText(`\\begin{tabular}{l${"r".repeat(lines()[0].length - 1)}}\n${rows.join("\n")}\n\\end{tabular}`);
    latex.textContent = "Copied";
  });
  box.after(make("p", { className: "save" }, csv, latex));
}

function table(titles, rows, caption) {
  const head = titles.map((title, i) => make("th", { scope: "col", className: i ? "number" : "method" }, title));
  head.forEach((cell, i) => i && cell.toggleAttribute("data-falling", titles[i] !== "Mean rank"));
  const found = make("table", {}, make("caption", {}, caption), make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
  const box = make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: caption }, found);
  sortable(found);
  return box;
}

const shown = (value, sign) => (value === null || isNaN(value) ? "–" : (sign && value > 0 ? "+" : "") + value.toFixed(sign ? 1 : 2));
const number = (value, sign = false) => {
  const cell = make("td", { className: "number" }, shown(value, sign));
  if (value !== null && !isNaN(value)) cell.dataset.value = value;
  return cell;
};
const named = (method) => make("th", { scope: "row", className: "method" }, make("a", { href: method.page }, method.name));
const mean = (values) => (values.length && values.every((v) => v !== null) ? values.reduce((a, b) => a + b, 0) / values.length : null);

// The choice of the reader: values of the metric, places of its tasks, and those that a mean may include.
function choice(board) {
  const metric = STATE.metric in board.values ? STATE.metric : Object.keys(board.metrics)[0];
  const wanted = STATE.data?.split("|");
  const every = board.tasks.map((_, i) => i);
  const tasks = wanted ? every.filter((i) => wanted.includes(board.tasks[i].name)) : every;
  const one = metric === "score" ? tasks.filter((i) => !board.mixed.includes(board.tasks[i].name)) : tasks;
  return { metric, tasks, averaged: one.length ? one : tasks, values: board.values[metric] };
}

// Mean over datasets: tasks of one dataset are averaged first.
function overDatasets(board, values, places) {
  const groups = Map.groupBy ? Map.groupBy(places, (i) => board.tasks[i].dataset) : places.reduce((all, i) => all.set(board.tasks[i].dataset, [...(all.get(board.tasks[i].dataset) || []), i]), new Map());
  return [...groups.values()].map((own) => mean(own.map((i) => values[i])));
}

// Mean rank of each ranked method with all values; ties share their mean rank; null for the others.
function meanRanks(board, { values, tasks }) {
  const all = values.map((own) => overDatasets(board, own, tasks));
  const racing = board.methods.map((own, m) => own.status === "ranked" && all[m].every((v) => v !== null));
  const others = all.filter((_, m) => racing[m]);
  const rank = (v, d) => 0.5 + others.reduce((sum, own) => sum + (own[d] > v ? 1 : own[d] === v ? 0.5 : 0), 0);
  return all.map((own, m) => (racing[m] ? mean(own.map(rank)) : null));
}

const COLUMNS = { rank: "Mean rank", mean: "Mean", gap: "Against a baseline", tasks: "Each task" };

function scores(board, box) {
  const now = choice(board);
  const columns = STATE.columns?.split("|") || Object.keys(COLUMNS);
  const ranks = meanRanks(board, now);
  const means = now.values.map((own) => mean(overDatasets(board, own, now.averaged)));
  const bases = board.baselines.map((name) => [name, means[board.methods.findIndex((own) => own.name === name)]]);
  const has = (name) => columns.includes(name);
  const titles = ["Method"];
  if (has("rank")) titles.push("Mean rank");
  if (has("mean")) titles.push(`Mean ${board.metrics[now.metric]}, %`);
  if (has("gap")) titles.push(...bases.map(([name]) => `Against ${name}, points`));
  if (has("tasks")) titles.push(...now.tasks.map((i) => board.tasks[i].name));
  const order = board.methods.map((_, m) => m).filter((m) => !STATE.family || board.methods[m].family === STATE.family);
  order.sort((a, b) => (ranks[a] === null) - (ranks[b] === null) || ranks[a] - ranks[b]);
  const rows = order.map((m) => {
    const cells = [named(board.methods[m])];
    if (has("rank")) cells.push(number(ranks[m]));
    if (has("mean")) cells.push(number(means[m]));
    if (has("gap")) cells.push(...bases.map(([, base]) => number(means[m] === null || base === null ? null : means[m] - base, true)));
    if (has("tasks")) cells.push(...now.tasks.map((i) => number(now.values[m][i])));
    return make("tr", { className: board.methods[m].status }, ...cells);
  });
  box.replaceChildren(table(titles, rows, "Chosen scores"), make("p", { className: "legend" }, "Means over seeds, then tasks of a dataset, then datasets of one metric. Mean rank: 1 is best. A choice of datasets is a description: intervals and verdicts are in the tab Ranking."));
  savable(box.firstChild);
}

const FEW = 3; // methods to compare, at most
const MARKS = [(x) => ["circle", { cx: x, cy: 8, r: 5 }], (x) => ["rect", { x: x - 4.5, y: 3.5, width: 9, height: 9 }], (x) => ["path", { d: `M${x} 2l6 11h-12z` }]];

function svg(tag, attributes, ...children) {
  const found = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
  found.append(...children);
  return found;
}

// The values of the methods on one task, drawn between the least and the greatest of all.
function dots(board, chosen, values, low, high) {
  const at = (value) => 8 + (184 * (value - low)) / (high - low || 1);
  const marks = chosen.map((m, i) => (values[i] === null ? "" : svg(...Object.values(MARKS[i](at(values[i]))).concat()))).filter(Boolean);
  marks.forEach((mark, i) => mark.setAttribute("fill", board.methods[chosen[i]].colour));
  return make("td", {}, svg("svg", { class: "dots", width: 200, height: 16, "aria-hidden": "true" }, svg("line", { x1: 4, x2: 196, y1: 8, y2: 8 }), ...marks));
}

function compared(board, box) {
  const now = choice(board);
  const place = (name) => board.methods.findIndex((own) => own.name === name);
  const chosen = (STATE.methods?.split("|") || board.methods.slice(0, 2).map((own) => own.name)).map(place).filter((m) => m >= 0).slice(0, FEW);
  const known = chosen.flatMap((m) => now.tasks.map((i) => now.values[m][i])).filter((v) => v !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const names = chosen.map((m) => board.methods[m].name);
  const titles = ["Task", ...names, ...names.slice(1).map((name) => `${names[0]} − ${name}, points`), `${shown(low)} to ${shown(high)}`];
  const line = (name, values) => {
    const gaps = values.slice(1).map((v) => number(v === null || values[0] === null ? null : values[0] - v, true));
    return make("tr", {}, make("th", { scope: "row" }, name), ...values.map((v) => number(v)), ...gaps, dots(board, chosen, values, low, high));
  };
  const rows = now.tasks.map((i) => line(board.tasks[i].name, chosen.map((m) => now.values[m][i])));
  rows.push(line("Mean over datasets", chosen.map((m) => mean(overDatasets(board, now.values[m], now.averaged)))));
  box.replaceChildren(table(titles, rows, "Compared methods"), make("p", { className: "legend" }, `Circle, square, triangle: ${names.join(", ")}. Intervals and the verdict: `, make("code", {}, `fglbench compare METHOD METHOD -s ${board.file}`), "."));
  savable(box.firstChild);
}

function menu(label, key, options, changed) {
  const field = make("select", {}, ...Object.entries(options).map(([value, text]) => make("option", { value }, text)));
  field.value = STATE[key] in options ? STATE[key] : Object.keys(options)[0];
  field.addEventListener("change", () => (remember({ [key]: field.value }), changed()));
  return make("label", {}, label, field);
}

// Checkboxes; the address has no state if all are ticked.
function boxes(label, key, options, changed) {
  const ticked = () => STATE[key]?.split("|") || Object.keys(options);
  const fields = Object.entries(options).map(([value, text]) => [make("input", { type: "checkbox", value, checked: ticked().includes(value) }), text]);
  for (const [field] of fields) {
    field.addEventListener("change", () => {
      const on = fields.filter(([own]) => own.checked).map(([own]) => own.value);
      remember({ [key]: on.length === fields.length ? "" : on.join("|") || "none" });
      changed();
    });
  }
  return make("fieldset", {}, make("legend", {}, label), ...fields.map(([field, text]) => make("label", {}, field, " " + text)));
}

// A button for each group of tasks, by kind of data or label skew.
function groups(board, changed) {
  const names = [...new Set(board.tasks.flatMap((task) => task.groups))];
  const choose = (name) => {
    remember({ data: name && board.tasks.filter((task) => task.groups.includes(name)).map((task) => task.name).join("|") });
    changed(true);
  };
  return names.length < 2 ? [] : [menu("Kind of task", "group", { "": "all", ...Object.fromEntries(names.map((name) => [name, name])) }, () => choose(STATE.group))];
}

function controls(board) {
  const [chosen, comparison] = [document.getElementById("chosen"), document.getElementById("compared")];
  const [first, second] = [chosen.parentElement.querySelector(".tools"), comparison.parentElement.querySelector(".tools")];
  const draw = () => {
    const untouched = !["metric", "data", "columns", "family"].some((key) => STATE[key]);
    document.getElementById("all").hidden = !untouched;
    chosen.hidden = untouched;
    if (!untouched) scores(board, chosen);
    compared(board, comparison);
  };
  const families = Object.fromEntries([...new Set(board.methods.map((own) => own.family))].sort().map((name) => [name, name]));
  const fill = () => {
    const metric = () => menu("Metric", "metric", board.metrics, () => (fill(), draw()));
    const tasks = () => boxes("Tasks", "data", Object.fromEntries(board.tasks.map((task) => [task.name, task.name])), () => (fill(), draw()));
    first.replaceChildren(metric(), menu("Family", "family", { "": "all", ...families }, draw), ...groups(board, () => (fill(), draw())), boxes("Columns", "columns", COLUMNS, draw), tasks());
    const names = Object.fromEntries(board.methods.map((own) => [own.name, own.name]));
    const picked = STATE.methods?.split("|") || Object.keys(names).slice(0, 2);
    const pick = Array.from({ length: FEW }, (_, i) => {
      const field = menu(["Method", "with", "and"][i], "", i === 2 ? { "": "–", ...names } : names, () => {});
      field.lastChild.value = picked[i] || "";
      field.lastChild.addEventListener("change", () => (remember({ methods: pick.map((own) => own.lastChild.value).filter(Boolean).join("|") }), draw()));
      return field;
    });
    second.replaceChildren(...pick, metric());
  };
  fill();
  draw();
  first.hidden = false;
}

search();
document.querySelectorAll("main table").forEach((own) => own.tHead && sortable(own));
document.querySelectorAll("main section .scroll:has(table), #main > .scroll:has(table), .first .scroll").forEach((box) => savable(box));
if (DATA.board && document.getElementById("chosen")) controls(DATA.board);
tabs();

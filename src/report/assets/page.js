// What every part of the page shares: the data, colours of series, which series are shown, the legend, sortable tables.
"use strict";
const Page = (() => {
  const data = JSON.parse(document.getElementById("page-data").textContent);
  const series = data.series;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  // One hue a recipe, in the order the rows name them; the baseline is ink. [light page, dark page]
  const kHues = [["#1668c7", "#6fb3ff"], ["#2b7d32", "#63cf77"], ["#c9400a", "#ff9461"], ["#7a3fc4", "#bd97ff"],
    ["#0b7f86", "#4fd0d6"], ["#b3236f", "#ff86be"], ["#7d6200", "#e0bf4a"], ["#4d5d18", "#b9cf6a"]];
  const kInk = ["#2f353b", "#e8eaed"];

  function hex(text) {
    return [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
  }
  function mix(a, b, share) {
    const from = hex(a), to = hex(b);
    return "#" + from.map((v, i) => Math.round(v + (to[i] - v) * share).toString(16).padStart(2, "0")).join("");
  }
  function css(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  const recipes = [...new Set(series.map((s) => s.recipe))];
  const hued = recipes.filter((r) => !series.some((s) => s.recipe === r && s.baseline));
  const scopesOf = (recipe) => [...new Set(series.filter((s) => s.recipe === recipe).map((s) => s.scope))];

  // In a comparison the hue says the recipe and the tint the scope; separate runs each have a hue of their own.
  function colour(index) {
    const s = series[index], theme = dark.matches ? 1 : 0;
    if (!data.compare) return series.length === 1 ? kHues[0][theme] : kHues[index % kHues.length][theme];
    if (s.baseline) return kInk[theme];
    const hue = kHues[Math.max(0, hued.indexOf(s.recipe)) % kHues.length][theme];
    const scopes = scopesOf(s.recipe), last = scopes.length - 1;
    return last > 0 ? mix(hue, css("--page"), 0.42 * (last - scopes.indexOf(s.scope)) / last) : hue;
  }
  // Solid lines are the weights named first, dashed ones the others.
  const firstWeights = series.length ? series[0].weights : "";
  const dashed = (index) => data.compare && series[index].weights !== firstWeights;

  const visible = series.map(() => true);
  const listeners = [];
  const onChange = (listener) => listeners.push(listener);
  const changed = () => listeners.forEach((listener) => listener());

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key === "on") for (const [type, handler] of Object.entries(value)) made.addEventListener(type, handler);
      else if (key === "style") for (const [name, text] of Object.entries(value)) made.style.setProperty(name, text);
      else if (value !== null && value !== undefined) made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  }

  // Buttons of which one is pressed. `options`: [value, text]; calls back with the value.
  function choice(name, options, start, callback) {
    const buttons = options.map(([value, text]) => element("button", {
      type: "button", "aria-pressed": String(value === start),
      on: { click: () => { press(value); callback(value); } } }, text));
    function press(value) {
      buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(options[i][0] === value)));
    }
    const group = element("span", { role: "group", "aria-label": name }, ...buttons);
    const holder = element("span", { class: "choice" }, element("span", {}, name), group);
    return { holder, press, buttons };
  }

  function keyStyle(index) {
    return { "--line": colour(index), "--line-style": dashed(index) ? "dashed" : "solid" };
  }

  const keys = [];
  function key(index, text) {
    const button = element("button", {
      type: "button", class: "key", "aria-pressed": "true", "aria-label": series[index].label, style: keyStyle(index),
      on: { click: () => show([index], !visible[index]) } }, text);
    keys[index] = button;
    return button;
  }
  function show(indices, on) {
    for (const i of indices) visible[i] = on;
    keys.forEach((button, i) => button.setAttribute("aria-pressed", String(visible[i])));
    changed();
  }
  const all = () => series.map((s, i) => i);
  const where = (test) => all().filter((i) => test(series[i]));
  const only = (indices) => { visible.fill(false); show(indices, true); };

  function legend() {
    const place = document.getElementById("legend");
    if (!place) return;
    if (series.length < 2) { place.remove(); return; }
    const head = element("div", { class: "legend-head" }, element("span", {}, "Rows"));
    const filter = (text, indices) => head.append(
      element("button", { type: "button", on: { click: () => only(indices()) } }, text));
    filter("all", all);
    filter("none", () => []);
    const weights = [...new Set(series.map((s) => s.weights))];
    if (data.compare) {
      if (weights.length > 1)
        for (const w of weights) filter(w + " weights", () => where((s) => s.weights === w));
      const scopes = [...new Set(series.filter((s) => !s.baseline).map((s) => s.scope))];
      if (scopes.length > 1)
        for (const scope of scopes) filter(scope, () => where((s) => s.baseline || s.scope === scope));
    }
    place.append(head);
    if (!data.compare) {
      const cells = element("div", { class: "legend-cells free" });
      series.forEach((s, i) => cells.append(key(i, s.label)));
      place.append(cells);
      return;
    }
    for (const recipe of recipes) {
      const mine = where((s) => s.recipe === recipe);
      const cells = element("div", { class: "legend-cells" });
      for (const scope of scopesOf(recipe)) {
        const cell = element("div", { class: "legend-cell" },
          element("span", {}, scope === "none" ? "baseline" : scope.replace(/^linear\+/, "+")));
        for (const i of mine) if (series[i].scope === scope) cell.append(key(i, series[i].weights));
        cells.append(cell);
      }
      const name = element("button", { type: "button", title: "show or hide every row of this recipe",
        on: { click: () => show(mine, !mine.every((i) => visible[i])) } }, recipe);
      place.append(element("div", { class: "legend-row" }, name, cells));
    }
  }

  function sortable(table) {
    const head = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    const value = (row, column) => {
      const text = row.cells[column].firstChild ? row.cells[column].firstChild.textContent.trim() : "";
      const number = parseFloat(text.replace(/,/g, ""));
      return head[column].classList.contains("n") ? (Number.isNaN(number) ? null : number) : text;
    };
    head.forEach((cell, column) => {
      const button = element("button", { type: "button", title: "sort by this column" }, ...cell.childNodes);
      button.addEventListener("click", () => {
        const up = cell.getAttribute("aria-sort") !== "ascending";
        head.forEach((other) => other.removeAttribute("aria-sort"));
        cell.setAttribute("aria-sort", up ? "ascending" : "descending");
        [...body.rows].sort((a, b) => {
          const x = value(a, column), y = value(b, column);
          if (x === null || y === null) return (x === null) - (y === null);
          return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
        }).forEach((row) => body.append(row));
      });
      cell.append(button);
    });
  }
  document.querySelectorAll("table.sortable").forEach(sortable);
  const columns = document.getElementById("all-columns");
  if (columns) columns.addEventListener("click", () => {
    const every = document.getElementById("compare-table").classList.toggle("every");
    columns.setAttribute("aria-pressed", String(every));
  });

  legend();
  dark.addEventListener("change", () => {
    keys.forEach((button, i) => Object.entries(keyStyle(i)).forEach(([name, text]) => button.style.setProperty(name, text)));
    changed();
  });
  return { data, series, visible, colour, dashed, css, mix, element, choice, keyStyle, onChange, dark };
})();

// Quantization error of one run: layers down, tensors across, one step at a time; below it one layer over the steps.
"use strict";
(() => {
  const { element } = Page;
  const place = document.getElementById("quantization-view");
  const runs = Page.series.filter((s) => s.quantization);
  if (!place || !runs.length) return;

  const kMeasures = {
    snr_db: { text: "SNR", unit: "dB", low: "lowest", print: (v) => (v === "exact" ? "exact" : v.toFixed(1)) },
    saturated: { text: "saturated", unit: "%", print: percent },
    flushed: { text: "flushed", unit: "%", print: percent },
  };
  function percent(share) {
    const value = share * 100;
    if (value === 0) return "0";
    return value < 0.001 ? "<.001" : value < 0.1 ? value.toFixed(3) : value < 10 ? value.toFixed(2) : value.toFixed(1);
  }

  const state = { run: runs[0], measure: "snr_db", tensor: window.innerWidth < 860 ? "input" : "all", step: 0, layer: 0 };
  const q = () => state.run.quantization;
  const at = (step, layer, tensor) =>
    q()[state.measure][(step * q().layers.length + layer) * q().tensors.length + tensor];

  // "layers.3.mlp.down" -> block 3, kind mlp.down; anything else is a row of its own.
  function split(name) {
    const match = /^(.*?)(\d+)\.(.+)$/.exec(name);
    return match ? { row: match[1] + match[2], kind: match[3] } : { row: name, kind: "" };
  }
  function layout() {
    const rows = new Map(), kinds = [];
    q().layers.forEach((name, layer) => {
      const { row, kind } = split(name);
      if (!rows.has(row)) rows.set(row, new Map());
      rows.get(row).set(kind, layer);
      if (kind && !kinds.includes(kind)) kinds.push(kind);
    });
    return { rows, kinds: kinds.length ? kinds : [""] };
  }

  // 0 (no error to speak of) to 1 (the worst of this run and measure).
  function scale() {
    const numbers = q()[state.measure].filter((v) => typeof v === "number");
    if (!numbers.length) return { shade: () => 0, text: "" };
    const low = Math.min(...numbers), high = Math.max(...numbers), measure = kMeasures[state.measure];
    const shade = state.measure === "snr_db"
      ? (v) => (typeof v === "number" && high > low ? (high - v) / (high - low) : 0)
      : (v) => (high > 0 ? Math.sqrt(v / high) : 0);
    const ends = state.measure === "snr_db" ? [high, low] : [0, high];
    return { shade, text: ends.map((v) => measure.print(v)), unit: measure.unit };
  }
  const background = (shade) => Page.mix(Page.css("--page"), Page.css("--heat"), 0.06 + 0.8 * shade);
  function ink(colour) {
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16) / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
    return (light + 0.05) / 0.05 > 1.05 / (light + 0.05) ? "#000000" : "#ffffff";
  }

  function heat() {
    const { rows, kinds } = layout(), { shade, text, unit } = scale(), measure = kMeasures[state.measure];
    const tensors = q().tensors.map((name, t) => [name, t]).filter(([name]) => state.tensor === "all" || state.tensor === name);
    const gap = (t, k) => (t > 0 && k === 0 ? "gap" : null);
    const head = element("thead", {});
    const top = element("tr", {}, element("th", { rowspan: "2", scope: "col" }, "layer"));
    tensors.forEach(([name], t) => top.append(element("th", { scope: "colgroup", colspan: String(kinds.length), class: gap(t, 0) }, name)));
    const second = element("tr", {});
    tensors.forEach((unused, t) => kinds.forEach((kind, k) =>
      second.append(element("th", { scope: "col", class: gap(t, k) }, kind || "–"))));
    head.append(top, second);
    const body = element("tbody", {});
    for (const [row, cells] of rows) {
      const line = element("tr", {}, element("th", { scope: "row" }, row));
      const whole = cells.has("");
      tensors.forEach(([name, t], group) => {
        (whole ? [""] : kinds).forEach((kind, k) => {
          const layer = cells.get(kind), value = layer === undefined ? null : at(state.step, layer, t);
          const cell = element("td", { class: gap(group, k), colspan: whole ? String(kinds.length) : null });
          if (value !== null && value !== undefined) {
            const colour = background(shade(value));
            cell.append(element("span", { title: `${q().layers[layer]} ${name}: ${measure.print(value)} ${unit}`,
              style: { background: colour, color: ink(colour) } }, measure.print(value)));
          }
          line.append(cell);
        });
      });
      body.append(line);
    }
    const table = element("table", { class: "heat" }, head, body);
    const title = element("h3", { class: "caption" },
      `${state.run.label}: ${measure.text}, ${measure.unit}, at step ${q().steps[state.step]}`);
    const bar = element("span", { class: "heat-key",
      style: { background: `linear-gradient(to right, ${background(0)}, ${background(1)})` } });
    const legend = element("p", { class: "note" });
    if (text) legend.append(text[0] + " " + unit + " ", bar, " " + text[1] + " " + unit + ", over every step of this run.");
    heatPlace.replaceChildren(title,
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Quantization error by layer" }, table), legend);
  }

  const kLineColours = [["#1668c7", "#6fb3ff"], ["#c9400a", "#ff9461"], ["#2b7d32", "#63cf77"], ["#7a3fc4", "#bd97ff"]];
  function lines() {
    return q().tensors.map((name, t) => ({
      label: name, dashed: false, colour: kLineColours[t % 4][Page.dark.matches ? 1 : 0], x: q().steps,
      y: q().steps.map((unused, step) => {
        const value = at(step, state.layer, t);
        if (typeof value !== "number") return null;
        return state.measure === "snr_db" ? value : value * 100;
      }) })).filter((line) => line.y.some((v) => v !== null));
  }

  const heatPlace = element("div", {});
  const tools = element("div", { class: "tools" });
  const slider = element("input", { type: "range", min: "0", "aria-label": "step" });
  const stepText = element("output", {});
  const layers = element("select", { "aria-label": "layer" });
  const key = element("p", {});
  const figure = element("figure", { class: "chart" }, element("figcaption", {}, element("h3", {}, "Over the run"), key),
    element("div", { class: "plot" }));
  let chart = null;

  function drawChart() {
    if (chart) chart.draw();
    key.replaceChildren(`${kMeasures[state.measure].text}, ${kMeasures[state.measure].unit}: `);
    for (const line of lines())
      key.append(element("span", { style: { color: line.colour, "font-weight": "650" } }, "■ " + line.label), " ");
  }
  function draw() { heat(); drawChart(); }
  function fill() {
    const steps = q().steps;
    state.step = steps.length - 1;
    state.layer = Math.min(state.layer, q().layers.length - 1);
    slider.max = String(steps.length - 1);
    slider.value = String(state.step);
    slider.disabled = steps.length < 2;
    layers.replaceChildren(...q().layers.map((name, i) => element("option", { value: String(i) }, name)));
    layers.value = String(state.layer);
    stepText.textContent = "step " + steps[state.step];
  }

  if (runs.length > 1) {
    const select = element("select", { "aria-label": "run", on: { change: () => {
      state.run = runs[select.selectedIndex]; fill(); draw(); } } },
    ...runs.map((run) => element("option", {}, run.label)));
    tools.append(element("label", { class: "choice" }, element("span", {}, "Run"), select));
  }
  const tensorNames = runs[0].quantization.tensors;
  tools.append(
    Page.choice("Measure", Object.entries(kMeasures).map(([id, m]) => [id, m.text]), state.measure,
      (value) => { state.measure = value; draw(); }).holder,
    Page.choice("Tensor", [["all", "all"], ...tensorNames.map((name) => [name, name])], state.tensor,
      (value) => { state.tensor = value; heat(); }).holder,
    element("label", { class: "choice" }, slider, stepText));
  slider.addEventListener("input", () => {
    state.step = Number(slider.value);
    stepText.textContent = "step " + q().steps[state.step];
    heat();
  });
  layers.addEventListener("change", () => { state.layer = Number(layers.value); drawChart(); });
  place.append(tools, heatPlace);
  fill();
  if (typeof Dygraph !== "undefined" && runs.some((run) => run.quantization.steps.length > 1)) {
    place.append(element("div", { class: "tools", style: { margin: "1.25rem 0 .5rem" } },
      element("label", { class: "choice" }, element("span", {}, "Layer"), layers)), figure);
    chart = Charts.chart(figure, { lines, axis: () => Charts.kAxes.steps, dots: () => true,
      value: (v, tick) => (tick ? String(+v.toPrecision(3)) : v.toPrecision(4)) });
  }
  draw();
  Page.dark.addEventListener("change", draw);
})();

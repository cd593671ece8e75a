// Curves against tokens, time or steps: loss, difference to the baseline, evaluation, gradient norm, learning rate, speed.
"use strict";
const Charts = (() => {
  const { series, element } = Page;
  const state = { x: "tokens", view: "loss", span: "settled", smooth: 0 };

  const kSuffixes = [[1e9, " G"], [1e6, " M"], [1e3, " k"]];
  function short(value) {
    for (const [size, suffix] of kSuffixes)
      if (Math.abs(value) >= size) return +(value / size).toPrecision(3) + suffix;
    return String(+value.toPrecision(3));
  }
  function clock(seconds) {
    if (seconds > 0 && seconds % 60 === 0) {
      const hours = seconds / 3600;
      return hours >= 1 ? +hours.toFixed(2) + " h" : seconds / 60 + " min";
    }
    if (seconds < 60) return +seconds.toPrecision(3) + " s";
    const minutes = Math.floor(seconds / 60), rest = Math.round(seconds % 60);
    if (minutes >= 60) return Math.floor(minutes / 60) + ":" + String(minutes % 60).padStart(2, "0") + " h";
    return minutes + ":" + String(rest).padStart(2, "0") + " min";
  }
  // Ticks of a time axis at round seconds, minutes or hours.
  const kTimeSteps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
  function timeTicks(from, to, pixels) {
    const wanted = (to - from) / Math.max(2, pixels / 75);
    const step = kTimeSteps.find((s) => s >= wanted) || Math.ceil(wanted / 86400) * 86400;
    const ticks = [];
    for (let k = Math.ceil(from / step); k * step <= to; ++k) ticks.push({ v: k * step, label: clock(+(k * step).toFixed(3)) });
    return ticks;
  }
  const kAxes = {
    tokens: { column: "tokens", text: (v) => short(v), tip: (v) => short(v) + " tokens" },
    time: { column: "seconds", text: clock, tip: clock, ticker: timeTicks },
    steps: { column: "step", text: (v) => short(v), tip: (v) => "step " + v },
  };

  // Mean of `values` over a window of `width` points that ends at each; nulls are skipped.
  function smoothed(values, width) {
    if (width <= 1) return values;
    const out = [];
    let sum = 0, count = 0;
    values.forEach((value, i) => {
      if (value !== null) { sum += value; ++count; }
      const old = i >= width ? values[i - width] : null;
      if (old !== null) { sum -= old; --count; }
      out.push(count && value !== null ? sum / count : null);
    });
    return out;
  }

  // {x, y} of one series under a view, or null.
  function points(s, view) {
    const column = kAxes[state.x].column;
    if (view === "eval") return s.eval.loss.length ? { x: s.eval[column], y: s.eval.loss } : null;
    if (!s[view] || !s[view].some((v) => v !== null)) return null;
    return { x: s[column], y: view === "lr" ? s[view] : smoothed(s[view], state.smooth) };
  }

  // Rows [x, y of each line] over the union of all x, as the chart library reads them.
  function table(lines) {
    const rows = new Map();
    lines.forEach((line, i) => line.x.forEach((x, k) => {
      if (!rows.has(x)) rows.set(x, [x, ...lines.map(() => null)]);
      rows.get(x)[i + 1] = line.y[k];
    }));
    return [...rows.values()].sort((a, b) => a[0] - b[0]);
  }

  // Index of the value nearest to x in an ascending list.
  function nearest(values, x) {
    let low = 0, high = values.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (values[middle] < x) low = middle; else high = middle;
    }
    return Math.abs(values[low] - x) <= Math.abs(values[high] - x) ? low : high;
  }

  // One chart in `place`. `lines()` gives [{label, x, y, colour, dashed}], `axis()` an entry of kAxes, `value` prints y.
  function chart(place, { lines, axis, value, zero, dots, windowOf }) {
    const plot = place.querySelector(".plot");
    const canvas = element("div", { style: { position: "absolute", inset: "0" } });
    const tip = element("div", { class: "tip" });
    plot.append(canvas, tip);
    let graph = null, drawn = [];

    function hide() { tip.style.display = "none"; }
    function hover(event, x, hovered, row, name) {
      const shown = axis();
      const pixel = graph.toDomYCoord(hovered.length ? (hovered.find((p) => p.name === name) || hovered[0]).yval : 0);
      const entries = drawn.map((line) => {
        const k = nearest(line.x, x);
        return { line, y: line.y[k], near: line.label === name };
      }).filter((entry) => entry.y !== null && entry.y !== undefined);
      entries.sort((a, b) => Math.abs(graph.toDomYCoord(a.y) - pixel) - Math.abs(graph.toDomYCoord(b.y) - pixel));
      const kept = entries.slice(0, 8).sort((a, b) => b.y - a.y);
      tip.replaceChildren(element("b", {}, shown.tip(x)), ...kept.map((entry) => element("div",
        { class: entry.near ? "near" : "", style: { "--line": entry.line.colour, "--line-style": entry.line.dashed ? "dashed" : "solid" } },
        element("i", {}), element("span", {}, entry.line.short || entry.line.label), element("span", {}, value(entry.y)))));
      if (entries.length > kept.length) tip.append(element("span", {}, `and ${entries.length - kept.length} further away`));
      tip.style.display = "block";
      const at = graph.toDomXCoord(x), right = at > plot.clientWidth / 2;
      const left = right ? at - tip.offsetWidth - 14 : at + 14;
      tip.style.left = Math.max(0, Math.min(plot.clientWidth - tip.offsetWidth, left)) + "px";
      tip.style.top = "4px";
    }

    function draw() {
      hide();
      drawn = lines();
      place.classList.toggle("empty", drawn.length === 0);
      if (graph) { graph.destroy(); graph = null; }
      canvas.replaceChildren();
      if (!drawn.length) { canvas.append(element("p", { class: "note" }, "Nothing to draw: no series is shown.")); return; }
      const rows = table(drawn), shown = axis();
      const model = Object.assign({}, Dygraph.defaultInteractionModel || Dygraph.Interaction.defaultModel);
      for (const type of ["touchstart", "touchmove", "touchend"]) delete model[type];
      graph = new Dygraph(canvas, rows, {
        labels: ["x", ...drawn.map((line) => line.label)], colors: drawn.map((line) => line.colour),
        series: Object.fromEntries(drawn.map((line) => [line.label, { strokePattern: line.dashed ? [5, 3] : null }])),
        legend: "never", connectSeparatedPoints: true, strokeWidth: drawn.length > 8 ? 1.25 : 1.6,
        drawPoints: Boolean(dots && dots()), pointSize: 2.5, highlightCircleSize: 3,
        highlightSeriesOpts: { strokeWidth: 2.75, highlightCircleSize: 4 }, highlightSeriesBackgroundAlpha: 1,
        gridLineColor: Page.css("--grid"), axisLineColor: Page.css("--rule"), gridLineWidth: 1,
        xRangePad: 4, yRangePad: 8, rightGap: 12, dateWindow: windowOf ? windowOf(rows) : null, interactionModel: model,
        axes: {
          x: { axisLabelFormatter: (v) => shown.text(v), pixelsPerLabel: 55, axisLabelWidth: 70,
            ...(shown.ticker ? { ticker: shown.ticker } : {}) },
          y: { axisLabelFormatter: (v) => value(v, true), axisLabelWidth: 58, pixelsPerLabel: 36 },
        },
        underlayCallback: (context, area, g) => {
          if (!zero || !zero()) return;
          const y = g.toDomYCoord(0);
          context.fillStyle = Page.css("--muted");
          context.fillRect(area.x, y - 0.5, area.w, 1);
        },
        highlightCallback: hover, unhighlightCallback: hide,
      });
    }
    draw();
    window.addEventListener("resize", hide);
    return { draw, reset: () => graph && graph.resetZoom() };
  }

  function shownLines(view) {
    const lines = [];
    series.forEach((s, i) => {
      if (!Page.visible[i]) return;
      const line = points(s, view);
      if (line && line.x.length) lines.push({ ...line, label: s.label, colour: Page.colour(i), dashed: Page.dashed(i), baseline: s.baseline,
        short: Page.data.compare ? `${s.recipe} ${s.baseline ? "" : s.scope.replace(/^linear\+/, "+") + " "}${s.weights}` : s.label });
    });
    // Baselines last: drawn over the others.
    return lines.sort((a, b) => a.baseline - b.baseline);
  }

  function runCharts() {
    if (!document.getElementById("chart-loss")) return;
    const longest = Math.max(...series.map((s) => s.step.length));
    const thinned = series.some((s) => s.recorded > s.step.length);
    const widths = [1, 5, 20, 50, 200].filter((w) => w === 1 || w * 4 <= longest);
    state.smooth = widths.filter((w) => w <= Math.max(1, longest / 40)).pop() || 1;
    const axis = () => kAxes[state.x];
    const digits = (v, tick, places) => (tick ? String(+v.toPrecision(4)) : v.toFixed(places));
    const signed = (v, tick) => (v > 0 ? "+" : "") + (tick ? +v.toPrecision(3) : v.toFixed(4));
    // The part of the run to look at; the scale of y follows what is in it.
    const kParts = { all: 0, settled: 0.1, half: 0.5, quarter: 0.75 };
    const windowOf = (rows) => {
      const first = rows[0][0], last = rows[rows.length - 1][0];
      return state.span === "all" || state.view === "eval" ? null : [first + (last - first) * kParts[state.span], last];
    };
    const place = (id) => document.getElementById(id);
    const loss = chart(place("chart-loss"), { axis, windowOf, lines: () => shownLines(state.view),
      value: (v, tick) => digits(v, tick, 4), dots: () => state.view === "eval" });
    const main = [loss];
    if (place("chart-delta"))
      main.push(chart(place("chart-delta"), { axis, windowOf, lines: () => shownLines("delta"), value: signed, zero: () => true }));
    const others = [
      ["chart-grad", "grad_norm", (v, tick) => digits(v, tick, 3)],
      ["chart-lr", "lr", (v) => (v === 0 ? "0" : v.toExponential(1))],
      ["chart-speed", "tokens_per_s", (v, tick) => (tick ? short(v) : Math.round(v).toLocaleString("en"))],
    ].map(([id, view, value]) => chart(place(id), { axis, value, lines: () => shownLines(view) }));
    const draw = (charts) => charts.forEach((one) => one.draw());
    const drawAll = () => draw([...main, ...others]);

    function caption() {
      const mean = state.smooth > 1 ? ` Each point is the mean of ${state.smooth} ${thinned ? "points" : "steps"}.` : "";
      const write = (id, title, text) => {
        place(id).querySelector("h3").textContent = title;
        place(id).querySelector("p").textContent = text;
      };
      if (state.view === "eval") write("chart-loss", "Evaluation loss", "Nats a token, on held-out text.");
      else write("chart-loss", "Training loss", "Nats a token." + mean);
      if (place("chart-delta"))
        write("chart-delta", "Δ loss", "Loss less the baseline’s with the same weights at the same step, nats a token." + mean);
    }
    const set = (name, redraw) => (value) => { state[name] = value; caption(); redraw(); };
    const controls = place("loss-controls");
    const views = [["loss", "loss"]];
    if (series.some((s) => s.eval.loss.length)) views.push(["eval", "evaluation"]);
    if (views.length > 1) controls.append(Page.choice("Show", views, state.view, set("view", () => draw(main))).holder);
    controls.append(
      Page.choice("Against", [["tokens", "tokens"], ["time", "time"], ["steps", "steps"]], state.x, set("x", drawAll)).holder,
      Page.choice("Part", [["all", "whole run"], ["settled", "after 10%"], ["half", "last half"], ["quarter", "last quarter"]],
        state.span, set("span", () => draw(main))).holder);
    if (widths.length > 1)
      controls.append(Page.choice("Mean of", widths.map((w) => [w, w === 1 ? "none" : String(w)]), state.smooth,
        set("smooth", drawAll)).holder);
    controls.append(element("button", { type: "button", title: "drag over a chart to look closer",
      on: { click: () => { [...main, ...others].forEach((one) => one.reset()); } } }, "reset zoom"));
    caption();
    Page.onChange(drawAll);
  }
  if (typeof Dygraph !== "undefined") runCharts();
  return { chart, kAxes };
})();

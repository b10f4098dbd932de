"use strict";
{
  const copy = page.byId("copy");
  copy.hidden = false;
  copy.addEventListener("click", async () => {
    const command = page.byId("command");
    try {
      await navigator.clipboard.writeText(command.textContent);
      page.byId("copied").textContent = copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = "Copy"; page.byId("copied").textContent = ""; }, 2000);
    } catch {
      getSelection().selectAllChildren(command);
      page.byId("copied").textContent = "Selected; copy it with the keyboard";
    }
  });
}

page.start((data) => {
  const { byId, cssColour, colourOf, symbolOf, inert, config, axis, layout } = page;

  // The map
  const rows = data.map;
  const count = rows.x.length;
  const words = Object.keys(rows.categories);
  const texts = Array.from({ length: count }, (_, i) => [
    rows.id ? `<b>${inert(rows.id[i])}</b> (row ${rows.row[i]})` : `<b>row ${rows.row[i]}</b>`,
    ...words.map((word) => `${inert(word)}: ${inert(rows.categories[word].names[rows.categories[word].codes[i]])}`),
    `${data.part}: ${inert(data.sides[rows.part[i]].name)}`,
    `witness: ${rows.witness[i].toFixed(4)}`,
  ].join("<br>"));
  const drawable = document.createElement("canvas").getContext("webgl") ? "scattergl" : "scatter";
  const crowded = count > 4000 ? 1 : 0;
  const SIDES = data.sides.map((side, part) => ({
    part, symbol: symbolOf(part), size: (part ? 7 : 5) - crowded, name: inert(side.name), plain: side.name,
    colour: () => (side.colour ? cssColour(side.colour) : colourOf(part)),
  }));
  const LAST = SIDES.length - 1;
  const MOST_SHOWN = 8;
  const MOST_NAMES = 10;
  const state = { colour: "side", show: "all" };
  const shown = () => (state.show === "all" ? LAST : Number(state.show));

  function pick(test) {
    const found = [];
    for (let i = 0; i < count; i++) if (test(i)) found.push(i);
    return found;
  }

  function points(chosenRows, side, marker, more) {
    const at = (values) => chosenRows.map((i) => values[i]);
    return {
      type: drawable, mode: "markers", x: at(rows.x), y: at(rows.y), text: at(texts),
      hovertemplate: "%{text}<extra></extra>",
      marker: { symbol: side.symbol, size: side.size, opacity: 0.78, line: { width: side.part ? 0.8 : 0, color: cssColour("card") }, ...marker },
      ...more,
    };
  }

  function categoryTraces(word) {
    const { codes, names } = rows.categories[word];
    const sizes = names.map(() => 0);
    codes.forEach((code) => sizes[code]++);
    const ranked = names.map((_, code) => code).filter((code) => sizes[code]).sort((a, b) => sizes[b] - sizes[a]);
    const named = ranked.slice(0, ranked.length > MOST_NAMES ? MOST_NAMES - 1 : MOST_NAMES).sort((a, b) => a - b);
    const groups = named.map((code, place) => ({ name: inert(names[code]), colour: colourOf(place), has: (i) => codes[i] === code }));
    if (ranked.length > named.length) {
      const known = new Set(named);
      groups.push({ name: `${ranked.length - named.length} others`, colour: cssColour("neutral"), has: (i) => !known.has(codes[i]) });
    }
    const traces = [];
    for (const side of SIDES) {
      for (const group of groups) {
        const own = pick((i) => rows.part[i] === side.part && group.has(i));
        const listed = side.part === shown();
        traces.push(points(own, side, { color: group.colour }, {
          name: group.name, legendgroup: group.name, showlegend: listed, visible: visible(side),
        }));
      }
    }
    return traces;
  }

  const visible = (side) => state.show === "all" || Number(state.show) === side.part;

  function mapTraces() {
    if (state.colour === "side") {
      return SIDES.map((side) => points(pick((i) => rows.part[i] === side.part), side,
        { color: side.colour(), opacity: side.part ? 0.85 : 0.55 }, { name: side.name, visible: visible(side) }));
    }
    if (state.colour === "witness") {
      const most = rows.witness.reduce((high, value) => Math.max(high, Math.abs(value)), 1e-12);
      const scale = [[0, cssColour("train")], [0.5, cssColour("neutral")], [1, cssColour("val")]];
      return SIDES.map((side) => {
        const own = pick((i) => rows.part[i] === side.part);
        return points(own, side, {
          color: own.map((i) => rows.witness[i]), cmin: -most, cmax: most, colorscale: scale, showscale: side.part === shown(),
          colorbar: { title: { text: "witness", side: "right", font: { size: 12, color: cssColour("quiet") } }, thickness: 12, outlinewidth: 0, len: 0.7, tickfont: { size: 11, color: cssColour("quiet") } },
        }, { name: side.name, showlegend: false, visible: visible(side) });
      });
    }
    return categoryTraces(state.colour.slice("category:".length));
  }

  const share = (part) => `${(100 * part).toFixed(1)} % of the variance`;
  function drawMap() {
    const narrow = innerWidth < 640;
    const legend = narrow
      ? { orientation: "h", y: -0.16, x: 0, itemsizing: "constant" }
      : { x: 1.01, y: 1, itemsizing: "constant", font: { size: 12 } };
    return Plotly.react("map", mapTraces(), layout({
      xaxis: axis(`first direction, ${share(rows.explained[0])}`), yaxis: axis(`second direction, ${share(rows.explained[1])}`),
      legend, dragmode: "pan", uirevision: "map", margin: { l: 48, r: 8, t: 8, b: 44 },
    }), { ...config, scrollZoom: false });
  }

  function choices(place, name, options, current, react) {
    for (const [value, text] of options) {
      const label = document.createElement("label");
      const input = Object.assign(document.createElement("input"), { type: "radio", name, value, checked: value === current });
      const word = Object.assign(document.createElement("span"), { textContent: text });
      input.addEventListener("change", () => react(value));
      label.append(input, word);
      byId(place).append(label);
    }
  }
  choices("colour-by", "colour", [["side", data.part], ...words.map((word) => [`category:${word}`, word]), ["witness", "witness"]],
    "side", (value) => { state.colour = value; drawMap(); });
  const few = SIDES.length <= MOST_SHOWN ? SIDES : [];
  choices("show", "show", [["all", "all rows"], ...few.map((side) => [String(side.part), side.plain])],
    "all", (value) => { state.show = value; drawMap(); });
  byId("map-controls").hidden = false;
  document.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => {
    const factor = Number(button.dataset.zoom);
    if (!factor) return Plotly.relayout("map", { "xaxis.autorange": true, "yaxis.autorange": true });
    const axes = byId("map")._fullLayout;
    const around = ([low, high]) => [(low + high) / 2 - factor * (high - low) / 2, (low + high) / 2 + factor * (high - low) / 2];
    return Plotly.relayout("map", { "xaxis.range": around(axes.xaxis.range), "yaxis.range": around(axes.yaxis.range) });
  }));

  // The MMD among random ones
  function drawMmd() {
    const { value, random, upper } = data.mmd;
    const spread = random.map((_, i) => ((i * 7) % 11) / 11 - 0.5);
    const traces = [
      { type: "scatter", mode: "markers", name: "random splits", x: random, y: spread.map((v) => v * 0.5), marker: { size: 9, opacity: 0.6, color: cssColour("train") }, hovertemplate: "random split: %{x:.4g}<extra></extra>" },
      { type: "scatter", mode: "markers", name: "this split", x: [value], y: [0], marker: { size: 15, symbol: "diamond", color: cssColour("val") }, hovertemplate: "this split: %{x:.4g}<extra></extra>" },
    ];
    const note = (x, text, colour, align = "center") => ({ x, y: 0.62, yref: "y", text, showarrow: false, font: { color: colour, size: 12 }, xanchor: align });
    const end = upper ?? value;
    const side = (x) => (x < 0.18 * end ? "left" : x > 0.82 * end ? "right" : "center");
    const notes = [note(Math.min(...random), random.length > 1 ? "random splits" : "random split", cssColour("train"), "left"), note(value, "this split", cssColour("val"), side(value))];
    // Three heights, so that labels cannot meet: random splits below this split, the bound under the points.
    notes[1].y = 0.92;
    const shapes = [];
    if (upper !== null) {
      shapes.push({ type: "line", x0: upper, x1: upper, y0: -0.45, y1: 0.5, line: { color: cssColour("quiet"), width: 2, dash: "dot" } });
      notes.push({ ...note(upper, "upper bound", cssColour("quiet"), "right"), y: -0.58 });
      traces.push({ type: "scatter", mode: "markers", x: [upper], y: [0], marker: { size: 12, opacity: 0 }, hovertemplate: "no split exceeds %{x:.4g}<extra></extra>", name: "upper bound" });
    }
    return Plotly.react("mmd", traces, layout({
      xaxis: axis("MMD between training and validation", { range: [0, end * 1.04] }),
      yaxis: { visible: false, range: [-0.7, 1.1], fixedrange: true }, annotations: notes, shapes, showlegend: false, margin: { l: 16, r: 16, t: 4, b: 40 },
    }), config);
  }

  // Every part against the rest
  function drawRest() {
    const { value, random } = data.rest;
    const names = SIDES.map((side) => side.name);
    const chance = { x: [], y: [] };
    random.forEach((parts, i) => parts.forEach((far, part) => { chance.x.push(far); chance.y.push(part + (((i * 7) % 11) / 11 - 0.5) * 0.5); }));
    const traces = [
      { type: "scatter", mode: "markers", name: "random", ...chance, marker: { size: 6, opacity: 0.45, color: cssColour("quiet") }, hovertemplate: "random: %{x:.4g}<extra></extra>" },
      { type: "scatter", mode: "markers", name: `this ${data.part}`, x: value, y: value.map((_, part) => part), text: names,
        marker: { size: 14, symbol: "diamond", color: SIDES.map((side) => side.colour()), line: { width: 1, color: cssColour("card") } }, hovertemplate: "%{text}: %{x:.4g}<extra></extra>" },
    ];
    return Plotly.react("rest", traces, layout({
      xaxis: axis("MMD to all other rows", { range: [0, Math.max(...value, ...chance.x) * 1.06] }),
      yaxis: axis("", { tickvals: names.map((_, part) => part), ticktext: names, range: [LAST + 0.6, -0.6], fixedrange: true, showgrid: false }),
      legend: { orientation: "h", x: 1, xanchor: "right", y: 1.0, yanchor: "bottom" }, margin: { l: 48, r: 16, t: 24, b: 40 },
    }), config);
  }

  // The objective
  function drawTrace() {
    const runs = data.restarts.map((run) => ({ ...run, won: run.start === data.winner, trace: run.trace?.length ? run.trace : [run.psi] }));
    runs.sort((a, b) => a.won - b.won);
    const lines = runs.map((run, place) => {
      const colour = cssColour(run.won ? "val" : "train");
      return {
        type: "scatter", mode: "lines+markers", name: run.won ? "winning start" : "other starts", legendgroup: run.won ? "won" : "others",
        showlegend: run.won || place === 0, opacity: run.won ? 1 : 0.55, x: run.trace.map((_, step) => step), y: run.trace,
        line: { color: colour, width: run.won ? 3 : 1.5 }, marker: { color: colour, size: run.trace.map((_, step) => (step === run.trace.length - 1 ? 8 : run.won ? 5 : 3)), line: { width: 0 } },
        hovertemplate: `${inert(run.start)}, step %{x}<br>Ψ %{y:.6g}<extra></extra>`,
      };
    });
    return Plotly.react("trace", lines, layout({
      xaxis: axis("step", { rangemode: "tozero" }), yaxis: axis("Ψ, lower is better"),
      legend: { orientation: "h", x: 1, xanchor: "right", y: 1.0, yanchor: "bottom" }, margin: { l: 56, r: 16, t: 24, b: 40 },
    }), config);
  }

  return () => Promise.all([drawMap(), data.rest ? drawRest() : drawMmd(), ...(data.winner ? [drawTrace()] : [])]);
});

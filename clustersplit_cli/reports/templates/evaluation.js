"use strict";
(async () => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const COLOURS = ["#4c72b0", "#c2410c", "#2f8f5b", "#a23b97", "#b08900", "#1d8aa8", "#c43d5b", "#6b5bd0", "#7a5c3e", "#5f6b7d", "#0f766e", "#9f1239"];

  // The page follows the system until the reader chooses; paper is always light.
  const darkSystem = matchMedia("(prefers-color-scheme: dark)");
  const printing = matchMedia("print");
  let chosen = null;
  const theme = () => (printing.matches ? "light" : chosen ?? (darkSystem.matches ? "dark" : "light"));
  const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const button = byId("theme");
  const applyTheme = () => {
    const now = theme();
    if (chosen || printing.matches) document.documentElement.dataset.theme = now;
    else delete document.documentElement.dataset.theme;
    button.textContent = now === "dark" ? "Light colours" : "Dark colours";
  };
  button.hidden = false;
  applyTheme();

  // Plotly understands a few tags in its texts: what comes from the data must not be taken for them.
  const inert = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  try {
    const packed = Uint8Array.from(atob(byId("plotly").textContent.trim()), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    if (!window.Plotly) throw new Error("Plotly did not start");
  } catch (error) {
    document.querySelectorAll(".chart").forEach((chart) => {
      chart.style.height = "auto";
      chart.textContent = "This browser cannot draw the charts; every table works without them.";
    });
    return;
  }

  const config = { displaylogo: false, responsive: true, displayModeBar: false };
  const axis = (title, more = {}) => ({
    title: { text: title, font: { size: 12, color: cssColour("quiet") }, standoff: 8 },
    gridcolor: cssColour("line"), zerolinecolor: cssColour("neutral"), linecolor: cssColour("line"),
    tickfont: { size: 11, color: cssColour("quiet") }, automargin: true, ...more,
  });
  const layout = (more) => ({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: cssColour("body"), size: 12, color: cssColour("ink") },
    margin: { l: 48, r: 16, t: 8, b: 40 }, hovermode: "closest", showlegend: false, ...more,
  });

  function drawGain(protocol) {
    const colour = (word) => cssColour({ gains: "good", loses: "bad" }[word] ?? "quiet");
    const trace = {
      type: "scatter", mode: "markers", x: protocol.gain, y: protocol.strategies.map(inert),
      error_x: { type: "data", array: protocol.se, color: cssColour("quiet"), thickness: 1.5 },
      marker: {
        size: 11, color: protocol.finding.map(colour),
        symbol: protocol.finding.map((word) => ({ unclear: "circle-open", reference: "diamond-open" }[word] ?? "circle")),
      },
      hovertemplate: "%{y}: %{x:+.2f} points<extra></extra>",
    };
    return Plotly.react(`gain-${protocol.name}`, [trace], layout({
      xaxis: axis("points gained over random", { zeroline: true, zerolinewidth: 2 }), yaxis: axis("", { autorange: "reversed" }),
    }), config);
  }

  function drawMmd() {
    const names = [...new Set(data.runs.map((run) => run.strategy))];
    const rounds = new Map();
    for (const run of data.runs) {
      const key = JSON.stringify([run.domain, run.repeat]);
      rounds.set(key, [...(rounds.get(key) ?? []), run]);
    }
    const centred = [...rounds.values()].flatMap((runs) => {
      const mean = runs.reduce((sum, run) => sum + run.test, 0) / runs.length;
      return runs.map((run) => ({ ...run, rest: 100 * (run.test - mean) }));
    });
    const traces = names.map((name, place) => {
      const own = centred.filter((run) => run.strategy === name);
      return {
        type: "scatter", mode: "markers", name: inert(name), x: own.map((run) => run.mmd), y: own.map((run) => run.rest),
        text: own.map((run) => inert(run.domain)), marker: { size: 8, opacity: 0.75, color: COLOURS[place % COLOURS.length] },
        hovertemplate: `${inert(name)}, %{text}<br>MMD %{x:.3f}, %{y:+.1f} points<extra></extra>`,
      };
    });
    return Plotly.react("mmd", traces, layout({
      xaxis: axis("MMD(T,V)", { rangemode: "tozero" }), yaxis: axis("test accuracy less the round's mean, points"),
      showlegend: true, legend: { orientation: "h", y: -0.2, font: { size: 11 } },
    }), config);
  }

  function drawRanks() {
    const trace = {
      type: "bar", orientation: "h", x: data.ranks.map((rank) => rank.mean), y: data.ranks.map((rank) => inert(rank.strategy)),
      error_x: { type: "data", array: data.ranks.map((rank) => rank.se), color: cssColour("ink"), thickness: 1.2 },
      marker: { color: cssColour("train") }, hovertemplate: "%{y}: %{x:.2f}<extra></extra>",
    };
    return Plotly.react("ranks", [trace], layout({ xaxis: axis("rank correlation", { range: [-1, 1] }), yaxis: axis("", { autorange: "reversed" }) }), config);
  }

  const drawAll = () => Promise.all([...data.protocols.map(drawGain), drawMmd(), drawRanks()]);
  const redraw = () => { applyTheme(); return drawAll(); };
  button.addEventListener("click", () => { chosen = theme() === "dark" ? "light" : "dark"; redraw(); });
  darkSystem.addEventListener("change", redraw);
  printing.addEventListener("change", redraw);
  await drawAll();
  document.documentElement.dataset.ready = "yes";
})();

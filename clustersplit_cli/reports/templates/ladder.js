"use strict";
page.start((data) => {
  const { cssColour, axis, layout } = page;
  const config = { ...page.config, displayModeBar: false };

  function drawLadder() {
    const line = {
      type: "scatter", mode: "lines", x: data.levels.map((level) => level.level), y: data.levels.map((level) => level.mmd),
      line: { color: cssColour("val"), width: 2 }, hoverinfo: "skip", showlegend: false,
    };
    const marks = {
      type: "scatter", mode: "markers", x: data.runs.map((run) => run.level), y: data.runs.map((run) => run.mmd),
      text: data.runs.map((run) => `repeat ${run.repeat}`), showlegend: false,
      marker: { size: 9, opacity: 0.8, color: cssColour("train"), line: { width: 1, color: cssColour("card") } },
      hovertemplate: "severity %{x}, %{text}<br>MMD %{y:.4f}<extra></extra>",
    };
    const target = {
      type: "scatter", mode: "lines+text", x: [-0.04, 1.04], y: [data.target, data.target], text: ["MMD(S,E) of the target", ""], textposition: "top right",
      line: { color: cssColour("quiet"), width: 1.5, dash: "dash" }, hovertemplate: "target: MMD %{y:.4f}<extra></extra>", showlegend: false,
    };
    return Plotly.react("ladder", [line, marks, ...(data.target === null ? [] : [target])], layout({
      xaxis: axis("severity", { range: [-0.04, 1.04] }), yaxis: axis("MMD(T,V)", { rangemode: "tozero" }),
    }), config);
  }

  return () => Promise.all([drawLadder()]);
});

"use strict";
page.start((data) => {
  const { cssColour, colourOf, symbolOf, inert, axis, layout } = page;
  const config = { ...page.config, displayModeBar: false };

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
        text: own.map((run) => inert(run.domain)), marker: { size: 8, opacity: 0.75, color: colourOf(place), symbol: symbolOf(place) },
        hovertemplate: `${inert(name)}, %{text}<br>MMD %{x:.3f}, %{y:+.1f} points<extra></extra>`,
      };
    });
    return Plotly.react("mmd", traces, layout({
      xaxis: axis("MMD(T,V)", { rangemode: "tozero" }), yaxis: axis("points above the round's mean", { zeroline: true }),
      showlegend: true, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 } },
    }), config);
  }

  function drawRanks() {
    const trace = {
      type: "bar", orientation: "h", x: data.ranks.map((rank) => rank.mean), y: data.ranks.map((rank) => inert(rank.strategy)),
      error_x: { type: "data", array: data.ranks.map((rank) => rank.se), color: cssColour("ink"), thickness: 1.2 },
      marker: { color: cssColour("train") }, hovertemplate: "%{y}: %{x:.2f}<extra></extra>",
    };
    return Plotly.react("ranks", [trace], layout({ xaxis: axis("rank correlation", { range: [-1, 1], zeroline: true }), yaxis: axis("", { autorange: "reversed" }) }), config);
  }

  function drawCurve() {
    const traces = data.curve.flatMap((found, place) => {
      const [name, colour] = [inert(found.domain), colourOf(place)];
      const of_domain = { type: "scatter", legendgroup: found.domain, showlegend: false };
      const edges = [...found.accuracy.map((value, i) => value + found.sd[i]), ...found.accuracy.map((value, i) => value - found.sd[i]).reverse()];
      const mark = { size: 11, color: colour, symbol: symbolOf(place) };
      const band = { ...of_domain, mode: "none", x: [...found.mmd, ...[...found.mmd].reverse()], y: edges, fill: "toself", fillcolor: `${colour}22`, hoverinfo: "skip" };
      const line = {
        ...of_domain, mode: "lines", name, showlegend: true, x: found.mmd, y: found.accuracy, text: found.level.map((level) => `severity ${level}`),
        line: { color: colour, width: 2 }, hovertemplate: `set aside: ${name}, %{text}<br>MMD %{x:.3f}, %{y:.1f} %<extra></extra>`,
      };
      const expected = {
        ...of_domain, mode: "markers", x: [found.at], y: [found.expected], marker: mark, error_y: { type: "data", array: [found.error], color: colour, thickness: 1.2 },
        hovertemplate: `${name}: expected %{y:.1f} ± ${found.error.toFixed(1)} %<extra></extra>`,
      };
      const observed = {
        ...of_domain, mode: "markers", x: [found.at], y: [found.observed], marker: { ...mark, symbol: `${mark.symbol}-open`, line: { width: 2 } },
        hovertemplate: `${name}: found %{y:.1f} %<extra></extra>`,
      };
      return [band, line, expected, ...(found.observed === null ? [] : [observed])];
    });
    return Plotly.react("curve", traces, layout({
      xaxis: axis("MMD(T,V), and MMD(S,E) of the marks", { rangemode: "tozero" }), yaxis: axis("accuracy, %"),
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 } },
    }), config);
  }

  return () => Promise.all([
    ...data.protocols.map(drawGain), ...(data.runs.length ? [drawMmd()] : []), ...(data.ranks.length ? [drawRanks()] : []),
    ...(data.curve.length ? [drawCurve()] : []),
  ]);
});

"use strict";
// What every page does: themes, paper, unpacking Plotly, the look of charts. The script of a page calls `page.start`.
const page = (() => {
  const byId = (id) => document.getElementById(id);
  const PALETTE = {
    light: ["#4c72b0", "#c2410c", "#2f8f5b", "#a23b97", "#b08900", "#1d8aa8", "#c43d5b", "#6b5bd0", "#7a5c3e", "#5f6b7d"],
    dark: ["#7ea6e8", "#ff9457", "#6fcf97", "#dd8bd3", "#e3c14f", "#63c7e0", "#ff8ba0", "#a99cf5", "#c9a680", "#a3adbf"],
  };
  const SYMBOLS = ["circle", "diamond", "square", "triangle-up", "cross", "star", "pentagon", "triangle-down", "x", "hexagram"];

  // The page follows the system until the reader chooses; paper is always light.
  const darkSystem = matchMedia("(prefers-color-scheme: dark)");
  const printing = matchMedia("print");
  let chosen = null;
  let draw = () => {};
  const theme = () => (printing.matches ? "light" : chosen ?? (darkSystem.matches ? "dark" : "light"));
  const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  // Colours and symbols run out together: each further round pairs them anew.
  const colourOf = (place) => PALETTE[theme()][place % PALETTE.light.length];
  const symbolOf = (place) => SYMBOLS[(place + Math.floor(place / PALETTE.light.length)) % SYMBOLS.length];
  const button = byId("theme");
  function applyTheme() {
    const now = theme();
    if (chosen || printing.matches) document.documentElement.dataset.theme = now;
    else delete document.documentElement.dataset.theme;
    button.textContent = now === "dark" ? "Light colours" : "Dark colours";
  }
  const redraw = () => { applyTheme(); return draw(); };
  button.hidden = false;
  applyTheme();
  button.addEventListener("click", () => { chosen = theme() === "dark" ? "light" : "dark"; redraw(); });
  darkSystem.addEventListener("change", redraw);
  printing.addEventListener("change", redraw);

  // A chart in a part that was folded away had no size when it was drawn.
  document.querySelectorAll("details.fold").forEach((part) => part.addEventListener("toggle", () => {
    if (part.open && window.Plotly) part.querySelectorAll(".chart").forEach((chart) => Plotly.Plots.resize(chart));
  }));

  // Paper cannot be clicked: what is folded away is printed too.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    folded.forEach((part) => { part.open = true; });
  });
  addEventListener("afterprint", () => folded.forEach((part) => { part.open = false; }));

  // Plotly understands a few tags in its texts: what comes from the data must not be taken for them.
  const inert = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  const config = {
    displaylogo: false, responsive: true, displayModeBar: false, // it lies over legends and labels; what zooms is beside the chart
  };
  const axis = (title, more = {}) => ({
    title: { text: title, font: { size: 12, color: cssColour("quiet") }, standoff: 8 },
    gridcolor: cssColour("line"), zeroline: false, zerolinecolor: cssColour("neutral"), linecolor: cssColour("line"), tickcolor: cssColour("line"),
    tickfont: { size: 11, color: cssColour("quiet") }, automargin: true, ...more,
  });
  const layout = (more) => ({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: cssColour("body"), size: 12, color: cssColour("ink") },
    hoverlabel: { bgcolor: cssColour("card"), bordercolor: cssColour("neutral"), font: { color: cssColour("ink"), size: 12 }, align: "left" },
    margin: { l: 48, r: 16, t: 8, b: 40 }, hovermode: "closest", ...more,
  });

  async function loadPlotly() {
    const packed = Uint8Array.from(atob(byId("plotly").textContent.trim()), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    if (!window.Plotly) throw new Error("Plotly did not start");
  }

  // `prepare` is called once Plotly is there, and returns the function that draws all charts, now and in every other theme.
  async function start(prepare) {
    try {
      await loadPlotly();
    } catch (error) {
      document.querySelectorAll(".chart").forEach((chart) => {
        chart.style.height = "auto";
        chart.textContent = "This browser cannot draw the charts; every table works without them.";
      });
      return;
    }
    draw = prepare(JSON.parse(byId("data").textContent));
    await draw();
    document.documentElement.dataset.ready = "yes";
  }

  return { byId, cssColour, colourOf, symbolOf, inert, config, axis, layout, start };
})();

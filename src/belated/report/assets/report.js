// Draws the charts of a page. Runs without eval: specifications are interpreted (`ast`).
const root = document.documentElement;

function isDark() {
  const said = root.dataset.theme;
  return said ? said === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

// The width of a chart is fixed when it is drawn, so charts are redrawn for printing.
async function draw(specs) {
  for (const [name, spec] of Object.entries(specs)) {
    const place = document.getElementById("chart-" + name);
    if (!place) continue;
    try {
      await vegaEmbed(place, spec, {renderer: "svg", actions: false, ast: true, tooltip: {theme: "custom"}});
    } catch (error) {
      place.textContent = "This chart could not be drawn: " + error;
    }
  }
  document.body.dataset.drawn = Object.keys(specs).length;
}

document.addEventListener("click", (event) => {
  if (event.target.id === "theme") root.dataset.theme = isDark() ? "light" : "dark";
});
addEventListener("beforeprint", () => dispatchEvent(new Event("resize")));

const specs = document.getElementById("belated-specs");
if (specs) draw(JSON.parse(specs.textContent));

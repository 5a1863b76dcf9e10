// Shows the values behind an op or a chip that is clicked, on the page that report_page.py writes.
(() => {
  const root = document;
  const { first, ops } = JSON.parse(root.querySelector(".sm-values").textContent);
  const panel = root.querySelector(".panel");

  const element = (name, text) => Object.assign(document.createElement(name), { textContent: text ?? "" });

  function bars(counts, most, kind) {
    const width = 300 / counts.length;
    return counts.map((count, at) => {
      const height = (count / most) * 100;
      return `<rect class="${kind}" x="${at * width}" y="${105 - height}" width="${width - 1}" height="${height}"/>`;
    }).join("");
  }

  function histogram(spread) {
    const most = Math.max(1, ...spread.ours, ...spread.theirs);
    const holder = element("div");
    holder.innerHTML = `<svg viewBox="0 0 300 120" role="img" aria-label="histogram">` +
      bars(spread.theirs, most, "theirs") + bars(spread.ours, most, "ours") +
      `<text x="2" y="118">${spread.low}</text>` +
      `<text x="298" y="118" text-anchor="end">${spread.high}</text></svg>` +
      `<p><span class="key" style="background:var(--warm)"></span>program` +
      `<span class="key" style="background:var(--compute)"></span>reference</p>`;
    return holder;
  }

  function values(spread) {
    const table = element("table");
    const rows = [["furthest apart at", "program", "reference"], ...spread.furthest];
    rows.forEach((row, at) => {
      const line = table.insertRow();
      row.forEach((cell) => line.append(element(at ? "td" : "th", cell)));
    });
    return spread.furthest.length ? table : element("p", "All values are the same.");
  }

  function show(number, chip) {
    root.querySelectorAll(".chosen").forEach((one) => one.classList.remove("chosen"));
    const row = root.querySelector(`tr[data-op="${number}"]`);
    row?.classList.add("chosen");
    if (chip) row?.querySelector(`[data-chip="${chip}"]`)?.classList.add("chosen");
    const op = ops[number];
    if (!op) {
      panel.replaceChildren(element("p", "The page holds no values of this op: it was not compared, or is far from the first divergence."));
      return;
    }
    const spread = (chip && op.chips[chip]) || op.whole;
    const where = chip && op.chips[chip] ? `chip ${chip}` : "all chips";
    panel.replaceChildren(element("h2", `${op.name}, ${where}`), histogram(spread), values(spread));
  }

  root.addEventListener("click", (event) => {
    const row = event.target.closest("tr[data-op]");
    if (row) show(row.dataset.op, event.target.dataset.chip);
  });
  if (first !== null) show(String(first));
  const row = root.querySelector(`tr[data-op="${first}"]`);
  if (row) row.closest(".scroll").scrollTop = row.offsetTop - 100;
})();

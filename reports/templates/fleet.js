
// Without this script the page shows all teams.
const team = document.getElementById("team");
if (team) {
  const verdict = document.getElementById("week-verdict"), sentence = verdict.textContent;
  const every = query => document.querySelectorAll(query);
  const show = () => {
    const chosen = team.value, all = chosen === "";
    verdict.textContent = all ? sentence : team.selectedOptions[0].dataset.headline;
    for (const part of every("[data-all]")) part.hidden = !all;
    for (const part of every("dl[data-team]")) part.hidden = part.dataset.team !== chosen;
    for (const row of every("tr[data-team]")) row.hidden = all ? "extra" in row.dataset : row.dataset.team !== chosen;
    for (const first of every("tr[data-team]:first-child")) {
      const rows = first.parentElement.querySelectorAll("tr:not([hidden])").length;
      const more = first.closest(".more");
      (more ?? first.closest(".scroll")).hidden = !rows;
      if (more) {
        more.open = !all;
        more.querySelector("summary").textContent = `${rows} more`;
      }
    }
    for (const part of every(".behind")) part.open = !all;
    for (const section of every("section:has(tr[data-team])")) section.hidden = !section.querySelector("tr[data-team]:not([hidden])");
    for (const link of every(".contents a")) link.parentElement.hidden = document.querySelector(link.hash).closest("[hidden]") !== null;
    document.querySelector("[role=status]").textContent = all ? "" : "What is not by team is left out.";
    history.replaceState(null, "", all ? location.pathname + location.search : `#team=${encodeURIComponent(chosen)}`);
  };
  team.closest("[hidden]").hidden = false;
  team.addEventListener("change", show);
  const wish = decodeURIComponent(location.hash.match(/^#team=(.+)$/)?.[1] ?? "");
  if ([...team.options].some(option => option.value === wish) && wish) {
    team.value = wish;
    show();
  }
}

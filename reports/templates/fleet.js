
// Without this script the page shows all teams.
const team = document.getElementById("team");
if (team) {
  const status = document.querySelector("[role=status]");
  const show = () => {
    const chosen = team.value, all = chosen === "";
    for (const part of document.querySelectorAll("[data-all]")) part.hidden = !all;
    for (const part of document.querySelectorAll("dl[data-team]")) part.hidden = part.dataset.team !== chosen;
    for (const row of document.querySelectorAll("tr[data-team]")) row.hidden = !all && row.dataset.team !== chosen;
    for (const table of document.querySelectorAll("tr[data-team]:first-child")) {
      const shown = table.parentElement.querySelectorAll("tr:not([hidden])").length;
      const part = table.closest("details") ?? table.closest(".scroll");
      part.hidden = !shown;
      if (part.tagName === "DETAILS") {
        part.open = !all;
        part.querySelector("summary").textContent = `${shown} more`;
      }
    }
    for (const section of document.querySelectorAll("section:has(tr[data-team])")) {
      section.querySelector(".none")?.remove();
      if (!section.querySelector("tr[data-team]:not([hidden])")) section.append(make("p", { className: "none quiet" }, "None of this team."));
    }
    status.textContent = all ? "" : "Tables that are not by team are left out.";
    history.replaceState(null, "", all ? location.pathname + location.search : `#team=${encodeURIComponent(chosen)}`);
  };
  team.closest("[hidden]").hidden = false;
  team.addEventListener("change", show);
  const asked = decodeURIComponent(location.hash.match(/^#team=(.+)$/)?.[1] ?? "");
  if ([...team.options].some(option => option.value === asked) && asked) {
    team.value = asked;
    show();
  }
}

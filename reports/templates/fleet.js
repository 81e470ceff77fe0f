
// Without this script the page shows all teams.
const team = document.getElementById("team");
if (team) {
  team.closest("[hidden]").hidden = false;
  team.addEventListener("change", () => {
    for (const row of document.querySelectorAll("tr[data-team]")) {
      const of = row.dataset.team;
      row.hidden = team.value !== "" && of !== "" && of !== team.value;
    }
  });
}

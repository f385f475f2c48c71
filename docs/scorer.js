// Rank search results: answers and guides come before design records. Sphinx includes this file in
// its own script.
var Scorer = {
  score: (result) => {
    const [page, , , , score] = result;
    if (page.startsWith("decisions/") || page.startsWith("contributing/")) return score - 25;
    if (page === "questions") return score + 9;
    if (page === "reference/configuration" || page.startsWith("howto/")) return score + 8;
    if (page.startsWith("tutorial/")) return score + 7;
    return score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

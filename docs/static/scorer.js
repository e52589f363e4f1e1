// The order of the search's results: what tells how to do something comes before what tells why it
// was made so. Sphinx knows only whether words stand in titles, and decisions have long ones.
var Scorer = {
  score: ([page, title, anchor, description, score, file, kind]) => {
    if (kind === "object") return score;
    if (/^(decisions\/|generated\/(changelog|benchmarks|examples))/.test(page)) return score - 9;
    if (/^generated\//.test(page)) return score - 2;
    return page === "questions" ? score + 2 : score;
  },
  // As in Sphinx:
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

// All queries, requested less often where there are many.

import { readQueries } from "../access.js";

/** Beyond this number of queries, the time between two requests is a multiple of a request's duration. */
const [FEW, SHARE] = [100, 20];
const known = { queries: [], until: 0 };

/** All queries; with many of them a cached copy, some seconds old. */
export async function knownQueries() {
  if (performance.now() < known.until) return known.queries;
  const began = performance.now();
  known.queries = await readQueries();
  const ended = performance.now();
  known.until = known.queries.length > FEW ? ended + SHARE * (ended - began) : 0;
  return known.queries;
}

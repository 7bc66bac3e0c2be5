// What the server tells of itself before a talk.

/**
 * @typedef {object} Capabilities
 * @property {string[]} [languages] ISO 639 codes of the speech that it hears
 * @property {string[]} [voices] names that it knows
 */

/** @returns {Promise<Capabilities>} nothing, where the server cannot be asked */
export async function capabilities() {
  try {
    const answer = await fetch("v1/realtime/capabilities");
    return answer.ok ? await answer.json() : {};
  } catch {
    return {}; // The talk itself will say what is wrong.
  }
}

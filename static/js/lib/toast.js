/**
 * Shows a message in the page's live region.
 *
 * @param {string} text
 * @param {"success" | "error"} [tone]
 */
export function showToast(text, tone = "success") {
  document
    .querySelector("toast-region")
    ?.dispatchEvent(new CustomEvent("show-toast", { detail: { text, tone } }));
}

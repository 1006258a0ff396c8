/** Icons of the sprite, for elements that make their own rows. */

const SVG = "http://www.w3.org/2000/svg";
const sprite = /** @type {HTMLMetaElement | null} */ (document.querySelector('meta[name="icons"]'))?.content ?? "";

/**
 * @param {string} name
 * @param {string} [classes]
 * @returns {SVGSVGElement}
 */
export function icon(name, classes = "") {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", `icon ${classes}`.trim());
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("focusable", "false");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `${sprite}#${name}`);
  svg.append(use);
  return svg;
}

/**
 * Lets an icon show another drawing.
 *
 * @param {Element | null | undefined} svg
 * @param {string} name
 */
export function redraw(svg, name) {
  svg?.querySelector("use")?.setAttribute("href", `${sprite}#${name}`);
}

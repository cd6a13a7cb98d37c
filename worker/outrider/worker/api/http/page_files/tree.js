// The tree that a pass verified, as a picture: the root on the left, a column for each depth, what was
// committed in full ink. Tokens are only ever text.

const SVG = "http://www.w3.org/2000/svg";
const COLUMN = 84; // pixels of the picture before it is made to fit, as are all lengths here
const ROW = 20;
const WIDTH = 64; // of a token's box
const LONGEST = 8; // characters of a token that are shown

function made(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function shown(token) {
  const visible = token.replaceAll("\n", "⏎").replaceAll(" ", "·") || "∅"; // the end, for one
  const letters = [...visible];
  return letters.length > LONGEST ? `${letters.slice(0, LONGEST - 1).join("")}…` : visible;
}

// Rows with their children, the target's own token as one more, and the place of each.
export function layout(tree) {
  const rows = tree.texts.map((text, at) => ({ text, at, children: [], depth: 0, kind: "draft" }));
  rows[0].kind = "kept";
  for (const at of tree.accepted) rows[at].kind = "kept";
  rows.slice(1).forEach((row, index) => {
    const parent = rows[tree.parents[index]]; // stands before its children
    row.depth = parent.depth + 1;
    parent.children.push(row);
  });
  const last = rows[tree.accepted.at(-1) ?? 0];
  const own = { text: tree.following, children: [], depth: last.depth + 1, kind: "own" };
  last.children.push(own);
  let leaves = 0;
  const place = (row) => {
    row.children.forEach(place);
    const [first, final] = [row.children[0], row.children.at(-1)];
    row.y = first ? (first.y + final.y) / 2 : leaves++;
  };
  place(rows[0]);
  const every = [...rows, own];
  return { every, leaves, columns: 1 + Math.max(...every.map((row) => row.depth)) };
}

export function draw(picture, tree) {
  const { every, leaves, columns } = layout(tree);
  const x = (row) => row.depth * COLUMN + COLUMN / 2;
  const y = (row) => row.y * ROW + ROW / 2;
  const edge = (row, child) => {
    const [from, to, half] = [x(row) + WIDTH / 2, x(child) - WIDTH / 2, (COLUMN - WIDTH) / 2];
    return `M${from} ${y(row)}h${half}V${y(child)}H${to}`; // between two columns of boxes
  };
  const edges = every.flatMap((row) =>
    row.children.map((child) => made("path", { d: edge(row, child), class: child.kind })),
  );
  const nodes = every.flatMap((row) => [
    made("rect", { x: x(row) - WIDTH / 2, y: y(row) - 8, width: WIDTH, height: 16, rx: 4, class: row.kind }),
    made("text", { x: x(row), y: y(row) + 4, class: row.kind }, shown(row.text)),
  ]);
  const kept = [...tree.accepted.map((at) => tree.texts[at]), tree.following].join("");
  const [width, height] = [columns * COLUMN, leaves * ROW];
  const size = { width, height, viewBox: `0 0 ${width} ${height}` };
  const label = `${tree.accepted.length} of ${tree.texts.length - 1} draft tokens accepted: ${kept}`;
  for (const [key, value] of Object.entries({ ...size, "aria-label": label })) picture.setAttribute(key, value);
  picture.replaceChildren(...edges, ...nodes);
}

// The tree that a pass verified, as a picture: the root on the left, a column for each depth, what was
// committed in full ink. Tokens are only ever text.

const SVG = "http://www.w3.org/2000/svg";
const COLUMN = 78; // units of the picture, as are all lengths here
const ROW = 20;
const LONGEST = 8; // characters of a token that are shown

function made(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function shown(token) {
  const visible = token.replaceAll("\n", "⏎").replaceAll(" ", "·");
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
  const lines = every.flatMap((row) =>
    row.children.map((child) =>
      made("line", { x1: x(row), y1: y(row), x2: x(child), y2: y(child), class: child.kind }),
    ),
  );
  const nodes = every.flatMap((row) => [
    made("rect", { x: x(row) - 32, y: y(row) - 8, width: 64, height: 16, rx: 4, class: row.kind }),
    made("text", { x: x(row), y: y(row) + 4, class: row.kind }, shown(row.text)),
  ]);
  picture.setAttribute("viewBox", `0 0 ${columns * COLUMN} ${leaves * ROW}`);
  picture.replaceChildren(...lines, ...nodes);
}

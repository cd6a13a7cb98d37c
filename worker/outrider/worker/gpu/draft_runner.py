"""Draft runner on a device: rows through the model, their top children found where the logits are.

One wait for each step that is launched, and neither wait nor launch for a step that
`chained_passes` has anticipated. Only a step of one session that expands leaves is chained: with
several, the commits of any would change the next step. Children of sessions with penalties or
biases, or of another tokenizer, are found on the host, by the same noise. Knows nothing of links.
"""

import time
from collections.abc import Hashable

import numpy as np
import torch
from torch import Tensor

from outrider.worker.draft.batch import DraftBatch
from outrider.worker.draft.session import BRANCH, RunningMean
from outrider.worker.engine.runner import NO_CHILDREN, DraftRunner, TopChildren, spans
from outrider.worker.gpu.chained_passes import CHAINED, LAST, TREE, ChainedPasses
from outrider.worker.gpu.child_scores import LAST as LAST_SETTING
from outrider.worker.gpu.child_scores import ChildScoring, shapes
from outrider.worker.gpu.cuda_graphs import Work
from outrider.worker.gpu.input_layout import Staging
from outrider.worker.gpu.model import GpuModel, lasting_errors


class GpuDraftRunner:
    """A draft's model on a device, and the sampling noise of its targets."""

    def __init__(
        self,
        model: GpuModel,
        output_ids: tuple[int, ...] | None,
        vocabulary: int,
        share: float = 1.0,
        chained: int = CHAINED,
    ) -> None:
        """The first four as of `DraftRunner`; `chained`: passes of a launch, 1 to 6."""
        self.chained = chained
        self._model, self._copies = model, model.copies
        self._host = DraftRunner(model, output_ids, vocabulary, share)
        self._staging = Staging({**shapes(model.row_capacity), **TREE}, model.device, model.copies)
        self._scoring = ChildScoring(model, self._staging, self._host.ids, share)
        self._chain = ChainedPasses(model, self._staging, self._scoring, chained)
        words = model.row_capacity * 2 * BRANCH
        self._results = torch.zeros(words, dtype=torch.int32, device=model.device)
        self._host_results = model.copies.host(words, dtype=torch.int32)
        self._fetched = self._host_results.numpy()
        self.pass_seconds = RunningMean()
        """Of a pass among those of a chain."""
        self.launched = 0
        """Steps that took a launch."""
        self.answered = 0
        """Steps that had been anticipated."""
        model.copies.synchronize()

    @lasting_errors
    def run(self, step: DraftBatch) -> list[TopChildren]:
        """Return the top children of each part's rows with output (speculation.md, Sampling).

        Raises `ValueError` for more than 8 children of a row.
        """
        alone = step.parts[0] if len(step.parts) == 1 else None
        if alone is None:
            self._chain.drop()
        elif (known := self._chain.answer(alone, step.rows)) is not None:
            self.answered += 1
            return [known]
        if any(part.query.rules.branch > BRANCH for part in step.parts):
            raise ValueError(f"branch: at most {BRANCH} children of a row are found on a device")
        self.launched += 1
        shape = self._model.launch(step.rows)
        if not shape.outputs:
            return [NO_CHILDREN for _ in step.parts]
        if alone is not None:
            max_new_nodes = alone.session.max_new_nodes(self.pass_seconds.value)
            passes = self._chain.length(alone, max_new_nodes)
            if passes > 1:
                return [self._chained(step, passes, max_new_nodes)]
        return self._once(step, shape.outputs)

    def _chained(self, step: DraftBatch, passes: int, max_new_nodes: int) -> TopChildren:
        """Find the children of a pass of one part and run those passes that should follow."""
        (part,) = step.parts
        began, width = time.monotonic(), self._chain.width(part)
        asked = [(part.query, 0, len(part.query.positions))]
        variant = self._scoring.stage(asked, width)
        self._chain.stage(part, max_new_nodes)
        self._staging.send(LAST)
        self._launch(
            (self, "chain", width, passes, variant),
            lambda: self._chain.launch(width, passes, variant),
        )
        found = self._chain.fetch(step, width, passes)
        seconds = (time.monotonic() - began) / passes
        self.pass_seconds.add(seconds)
        return found

    def _once(self, step: DraftBatch, outputs: int) -> list[TopChildren]:
        """Find the children of a pass of any parts."""
        queries = [part.query for part in step.parts]
        placed = list(spans(queries, [len(query.positions) for query in queries]))
        asked = [one for one in placed if one[2] > one[1]]
        variant = self._scoring.stage(asked, outputs)
        self._staging.send(LAST_SETTING)
        self._launch(
            (self, "children", outputs, variant),
            lambda: self._scoring.launch(outputs, variant, *self._places(outputs)),
        )
        fetched = {
            begin: self._model.fetch_logits(begin, end)
            for query, begin, end in asked
            if query.rules.need_logits
        }
        self._copies.fetch(self._results, self._host_results)
        self._copies.wait()
        tokens, logprobs = self._fetched[: outputs * 2 * BRANCH].reshape(2, outputs, BRANCH)
        scores = logprobs.view(np.float32)
        return [
            NO_CHILDREN
            if end == begin
            else self._host.top_children(query, fetched[begin][:, : len(self._host.ids)])
            if query.rules.need_logits
            else TopChildren(
                tokens[begin:end, : query.rules.branch].copy(),
                scores[begin:end, : query.rules.branch].copy(),
            )
            for query, begin, end in placed
        ]

    def _places(self, outputs: int) -> tuple[Tensor, Tensor]:
        """Return where a pass's children and their log-probabilities go."""
        tokens, logprobs = self._results[: outputs * 2 * BRANCH].view(2, outputs, BRANCH)
        return tokens, logprobs.view(torch.float32)

    def _launch(self, key: Hashable, work: Work) -> None:
        """`key` names this runner too, for its graphs hold its buffers."""
        with self._copies.computing():
            self._model.graphs.run(key, work)

"""Trains a small language model on the conversations of `harbour_text`, in about three minutes on two cores.

With SLIPWAY_DEVICE=cuda it trains on a GPU.

    python -m serving.training.chat [--layers N] [--width N] [--steps N] [--seed N]

Writes a Hugging Face checkpoint and then `slipway.json` into `$SLIPWAY_OUTPUT_DIR`. Its metrics are the
perplexity of held-out text (per token of the answers), and the share of held-out questions that the model
answers exactly.
"""

import argparse
import itertools
import logging
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import LlamaForCausalLM

from serving.runtimes.torch import device
from serving.runtimes.transformers import llama
from serving.training import harbour_text
from serving.training.harbour_text import Conversation
from serving.training.output import output_directory, write_manifest

_log = logging.getLogger("train_chat")

VOCABULARY = 768
"""Tokens that the tokenizer has at most."""
CONTEXT = 512
"""Most tokens of a conversation; the longest has some 120."""
_LEARNING_RATE = 0.003
"""The highest learning rate: the rate rises to it over `_WARM_UP_STEPS`, then falls along a cosine to
`_LAST_SHARE` of it."""
_WARM_UP_STEPS = 20
_LAST_SHARE = 0.05
_QUESTIONS_PER_BATCH, _STORIES_PER_BATCH = 48, 12
"""Conversations of a batch, which has questions or stories alone: both have about as many tokens, and little
padding."""
_STORY_INTERVAL = 4
"""Every fourth batch is of stories."""
_HELD_OUT_STORIES = 50
_SPARE_TOKENS = 4
"""Tokens that an evaluated answer may have beyond the right one, so that a longer answer counts as wrong."""
_REPORT_SECONDS = 10.0
"""Between two lines of progress."""
_IGNORED = -100
"""Label of tokens that do not count in the loss, as Transformers has it."""


class EncodedConversation(NamedTuple):
    """The tokens of a conversation."""

    tokens: list[int]
    answer_start: int
    """Index of the first token of the answer."""


def train_tokenizer() -> Any:
    """Return a byte-level tokenizer of the conversations, with a chat template."""
    whole = llama.byte_level()
    whole.model = BPE()
    texts = [
        text
        for conversation in [
            *harbour_text.questions(),
            *itertools.islice(harbour_text.stories("tokenizer"), 1000),
        ]
        for text in (conversation.question, conversation.answer)
    ]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(llama.SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    whole.train_from_iterator(texts, trainer)
    return llama.for_chats(whole)


def encoded(tokenizer: Any, conversation: Conversation) -> EncodedConversation:
    """Return the tokens of a conversation, up to the end-of-text token behind its answer."""
    *before, _ = conversation.messages()
    prompt = tokenizer.apply_chat_template(before, tokenize=False, add_generation_prompt=True)
    inner = tokenizer.backend_tokenizer
    head = inner.encode(prompt, add_special_tokens=False).ids
    tail = inner.encode(conversation.answer + llama.END, add_special_tokens=False).ids
    return EncodedConversation([*head, *tail], len(head))


def batch(
    conversations: Sequence[EncodedConversation], target_device: torch.device
) -> dict[str, torch.Tensor]:
    """Return the model's arguments for a batch, each [conversations, longest]; only answers have labels."""
    longest = max(len(tokens) for tokens, _ in conversations)
    inputs = torch.zeros((len(conversations), longest), dtype=torch.long)
    labels = torch.full_like(inputs, _IGNORED)
    mask = torch.zeros_like(inputs)
    for row, (tokens, start) in enumerate(conversations):
        inputs[row, : len(tokens)] = torch.tensor(tokens)
        labels[row, start : len(tokens)] = torch.tensor(tokens[start:])
        mask[row, : len(tokens)] = 1
    whole = {"input_ids": inputs, "labels": labels, "attention_mask": mask}
    return {name: rows.to(target_device) for name, rows in whole.items()}


def batches(questions: Sequence[Conversation], seed: int) -> Iterator[list[Conversation]]:
    """Yield batches to train on, without end."""
    draw = random.Random(seed)  # noqa: S311 training data, not secrets
    stories = harbour_text.stories(f"train {seed}")
    for step in itertools.count():
        if step % _STORY_INTERVAL == 0:
            yield list(itertools.islice(stories, _STORIES_PER_BATCH))
        else:
            yield draw.sample(questions, _QUESTIONS_PER_BATCH)


def train(layers: int, width: int, steps: int, seed: int) -> tuple[Any, Any, dict[str, float]]:
    """Train; return the model, the tokenizer and the metrics.

    Args:
        layers: of the model.
        width: of its hidden states.
        steps: number of batches.
        seed: of the first weights and of the batches.
    """
    torch.manual_seed(seed)
    tokenizer = train_tokenizer()
    config = llama.config(tokenizer, width=width, layers=layers, context=CONTEXT, tie_word_embeddings=True)
    model = LlamaForCausalLM(config).to(device.usable())
    _log.info("%.1f million parameters", sum(weight.numel() for weight in model.parameters()) / 1e6)
    questions, held_out = harbour_text.split()
    stream = batches(questions, seed)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    reported = time.monotonic()
    for step, conversations in enumerate(itertools.islice(stream, steps)):
        cosine = (1 + math.cos(math.pi * step / steps)) / 2  # from 1 to 0
        decay = _LAST_SHARE + (1 - _LAST_SHARE) * cosine
        warm_up = min(1.0, (step + 1) / _WARM_UP_STEPS)
        for group in optimizer.param_groups:
            group["lr"] = _LEARNING_RATE * warm_up * decay
        loss = model(**batch([encoded(tokenizer, one) for one in conversations], model.device)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if time.monotonic() - reported >= _REPORT_SECONDS:
            reported = time.monotonic()
            _log.info("step %d of %d, loss %.3f", step, steps, loss.item())
    model.eval()
    return model, tokenizer, evaluate(model, tokenizer, held_out)


def evaluate(model: Any, tokenizer: Any, questions: Sequence[Conversation]) -> dict[str, float]:
    """Return the perplexity of held-out questions and stories, and the share of questions answered exactly.

    Args:
        model: the trained model.
        tokenizer: of the model.
        questions: the held-out ones.
    """
    stories = list(itertools.islice(harbour_text.stories("examined"), _HELD_OUT_STORIES))
    held_out = [*questions, *stories]
    losses, answer_tokens = [], []  # of each batch: the mean loss of a token, and the tokens of its answers
    for start in range(0, len(held_out), _QUESTIONS_PER_BATCH):
        part = held_out[start : start + _QUESTIONS_PER_BATCH]
        rows = batch([encoded(tokenizer, one) for one in part], model.device)
        with torch.inference_mode():
            losses.append(float(model(**rows).loss))
        answer_tokens.append(int((rows["labels"] != _IGNORED).sum()))
    total = sum(loss * count for loss, count in zip(losses, answer_tokens, strict=True))
    exact = sum(_answer(model, tokenizer, one) == one.answer for one in questions)
    return {"perplexity": math.exp(total / sum(answer_tokens)), "exactAnswers": exact / len(questions)}


def _answer(model: Any, tokenizer: Any, conversation: Conversation) -> str:
    """Return the model's answer to the question of a conversation."""
    tokens, answer_start = encoded(tokenizer, conversation)
    prompt = torch.tensor([tokens[:answer_start]], device=model.device)
    generated = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=len(tokens) - answer_start + _SPARE_TOKENS,
        do_sample=False,
    )
    return str(tokenizer.decode(generated[0, answer_start:], skip_special_tokens=True))


def write(model: Any, tokenizer: Any, metrics: dict[str, float], output: Path) -> None:
    """Write the checkpoint, and `slipway.json` last."""
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    for file in output.iterdir():
        file.chmod(0o644)
    write_manifest("transformers", metrics, output, source=Path(__file__))


def main() -> int:
    """Train and write; return the exit status.

    Raises:
        errors.UserError: `$SLIPWAY_OUTPUT_DIR` is not set.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256, help="a multiple of 64")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.width % 64 or options.width <= 0:
        parser.error(f"--width: must be a multiple of 64, got {options.width}")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    output = output_directory()  # before the minutes of training
    model, tokenizer, metrics = train(options.layers, options.width, options.steps, options.seed)
    write(model, tokenizer, metrics, output)
    _log.info(
        "perplexity %.3f, %.0f %% of questions answered", metrics["perplexity"], 100 * metrics["exactAnswers"]
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

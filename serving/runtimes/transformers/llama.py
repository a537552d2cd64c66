"""Small language models of Llama's architecture, for warm-ups, the sample, tests and benchmarks."""

from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import LlamaConfig, PreTrainedTokenizerFast

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
END = "<|end|>"
SPECIAL = (END, "<|system|>", "<|user|>", "<|assistant|>")
"""The tokens of the template."""


def byte_level() -> Tokenizer:
    """Return a tokenizer with a token for each byte; without merges and without the template's tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({letter: place for place, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def for_chats(tokenizer: Tokenizer, special: Sequence[str] = SPECIAL) -> Any:
    """Return the tokenizer in the class of Transformers, with the chat template and its special tokens."""
    tokenizer.add_special_tokens(list(special))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def config(tokenizer: Any, *, width: int, layers: int, context: int, **changed: Any) -> Any:
    """Return the configuration of a model.

    Args:
        tokenizer: the model's, of `for_chats`.
        width: channels of the hidden states; a multiple of 8 up to 128, and of 64 above.
        layers: number of layers.
        context: tokens of the longest sequence.
        changed: fields of `LlamaConfig` besides those below, or in place of them.
    """
    head_width = min(32, width // 4)
    heads = width // head_width
    end = tokenizer.eos_token_id
    fields = {
        "vocab_size": len(tokenizer),
        "hidden_size": width,
        "intermediate_size": width * 8 // 3,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2,
        "max_position_embeddings": context,
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
    }
    return LlamaConfig(**(fields | changed))
